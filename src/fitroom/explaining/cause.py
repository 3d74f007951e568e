"""Why memory ran out, as far as the log shows it."""

from dataclasses import dataclass
from typing import Literal

from fitroom.explaining.failure import Failure
from fitroom.units import format_bytes, used_of

CauseName = Literal[
    "step_size", "fragmentation", "other_process", "leak", "autotuning", "preallocation", "host", "unknown"
]

Sureness = Literal["shown", "likely", "unknown"]
"""shown: the sizes in the log prove it. likely: the usual reason, and nothing in the log speaks against it."""

_LARGE_SHARE = 0.25
"""Other processes that hold more than this share of a card are the cause; a CUDA context of one's own takes 0.3 to 1
GiB, a few per cent."""

_REFUSED_SHARE = 0.5
"""A framework that preallocates asks for nine tenths of the last size each time. Below half of the first it is no
matter of a context's size."""

_IDLE_SHARE = 0.1
"""PyTorch always keeps some free blocks; below this share of what it has reserved they are no fragmentation."""

_ROUNDING_SHARE = 0.01
"""Sizes are printed with three digits: "3.00GiB" may be a little more."""

_FULL_SHARE = 0.6
_ONE_BLOCK_BYTES = 2**30
"""XLA asks for all temporaries of a step as one block. A request as large as this is such a block."""


@dataclass(frozen=True, kw_only=True)
class Cause:
    """Why memory ran out, how sure that is, and the reason in a sentence."""

    name: CauseName
    sureness: Sureness
    why: str


def find_cause(failure: Failure, *, progress_count: int = 0) -> Cause:
    """Judge a failure by the sizes that were printed; `progress_count` is how many lines showed progress before it."""
    return (
        _of_the_host(failure)
        or _larger_than_the_device(failure)
        or _other_process(failure)
        or _fragmentation(failure)
        or _autotuning(failure)
        or _own_size(failure)
        or _unknown(failure, progress_count)
    )


def _of_the_host(failure: Failure) -> Cause | None:
    match failure.kind:
        case "host_out_of_memory":
            where = ": the step ran on the CPU" if failure.is_of_step else ", not the GPU's"
            return Cause(name="host", sureness="shown", why=f"The host's main memory ran out{where}.")
        case "killed":
            why = (
                "The process was killed from outside, which leaves no message of its own. Most often the system does "
                "so because the host's main memory ran out; `dmesg` or the job's log tells."
            )
            return Cause(name="host", sureness="likely", why=why)
        case "shared_memory":
            why = "The shared memory (/dev/shm) through which worker processes hand over batches is full."
            return Cause(name="host", sureness="shown", why=why)
    return None


def _larger_than_the_device(failure: Failure) -> Cause | None:
    capacity = failure.limit_bytes or failure.total_bytes
    asked = max(failure.requested_bytes or 0, failure.needed_bytes or 0)
    if capacity is None or asked <= capacity:
        return None
    why = f"One step asks for {format_bytes(asked)}, more than the {format_bytes(capacity)} there are."
    return Cause(name="step_size", sureness="shown", why=why)


def _other_process(failure: Failure) -> Cause | None:
    refused = failure.refused_bytes
    if refused and min(refused) < _REFUSED_SHARE * max(refused):
        sizes = f"{format_bytes(max(refused))} and still {format_bytes(min(refused))}"
        why = f"The driver refused the framework {sizes}: most of the card's memory was held by others."
        return Cause(name="other_process", sureness="likely", why=why)
    other, capacity = failure.other_bytes, failure.total_bytes or failure.limit_bytes
    if other is None or capacity is None or other < _LARGE_SHARE * capacity:
        return None
    why = f"Other processes hold {format_bytes(other)} of the device's {format_bytes(capacity)}."
    return Cause(name="other_process", sureness="shown", why=why)


def _fragmentation(failure: Failure) -> Cause | None:
    asked, in_use = failure.requested_bytes, failure.in_use_bytes
    if asked is None or in_use is None:
        return None
    if failure.framework == "torch" and failure.reserved_bytes is not None:
        idle = failure.reserved_bytes - in_use
        if idle < asked or idle < _IDLE_SHARE * failure.reserved_bytes:
            return None
        why = (
            f"PyTorch held {format_bytes(idle)} that were not in use, more than the {format_bytes(asked)} asked for, "
            "but not in one piece."
        )
        return Cause(name="fragmentation", sureness="shown", why=why)
    limit = failure.limit_bytes or 0
    free = limit - in_use - (failure.other_bytes or 0)
    if free < asked + _ROUNDING_SHARE * limit:
        return None
    if in_use < _LARGE_SHARE * limit:
        why = (
            f"The allocator may take {format_bytes(limit)} and had {format_bytes(in_use)} in use, but the card gave it "
            "no more: something else holds the memory."
        )
        return Cause(name="other_process", sureness="likely", why=why)
    why = (
        f"{format_bytes(free)} were free within the allocator's limit, more than the "
        f"{format_bytes(asked)} asked for, but not in one piece."
    )
    return Cause(name="fragmentation", sureness="shown", why=why)


def _autotuning(failure: Failure) -> Cause | None:
    if failure.phase != "autotuning":
        return None
    why = "Memory ran out while kernels were tried out for speed, which takes scratch memory beside the step's own."
    return Cause(name="autotuning", sureness="likely", why=why)


def _own_size(failure: Failure) -> Cause | None:
    if failure.kind != "device_out_of_memory":
        return None
    capacity = failure.limit_bytes or failure.total_bytes
    if capacity and failure.in_use_bytes and failure.in_use_bytes >= _FULL_SHARE * capacity:
        why = f"Tensors of this process filled the device: {used_of(failure.in_use_bytes, capacity)} were in use."
        return Cause(name="step_size", sureness="likely", why=why)
    asked = failure.requested_bytes or 0
    if capacity and failure.in_use_bytes and failure.in_use_bytes + asked > capacity:
        why = (
            f"What this process had in use and what it asked for are together more than the {format_bytes(capacity)} "
            "there are."
        )
        return Cause(name="step_size", sureness="likely", why=why)
    is_block = failure.framework == "jax" and asked >= _ONE_BLOCK_BYTES
    is_of_step = failure.layer is not None and failure.shape is not None
    if not (is_block or is_of_step) or capacity:
        return None
    why = (
        "XLA asks for the temporaries of a whole step as one block, and there was no room for it."
        if is_block
        else "A tensor of the training step did not fit. The log does not show what else was in memory."
    )
    return Cause(name="step_size", sureness="likely", why=why)


def _unknown(failure: Failure, progress_count: int) -> Cause:
    if "NVML_SUCCESS" in failure.quote:
        why = (
            "The driver refused PyTorch memory, and NVML, which PyTorch then asks who holds it, did not answer. The "
            "usual reason is that the card was full; a driver that was updated without a restart, or a MIG device that "
            "is named wrongly, looks the same."
        )
    elif failure.kind == "library_out_of_memory":
        why = (
            "cuDNN or cuBLAS could not start or found no algorithm that runs. The usual reason is that the framework, "
            "or another process, had taken the card's memory; a broken installation looks the same."
        )
    elif progress_count > 1:
        why = (
            "The log does not show what filled the memory. Training had been running before, so it may be a leak, a "
            "larger batch than before, fragmentation or another process."
        )
    else:
        why = "The log does not show what filled the memory: the step's own size is the usual reason."
    return Cause(name="unknown", sureness="unknown", why=why)
