"""JAX's devices and what its allocator counts.

It counts on a GPU, except under XLA_PYTHON_CLIENT_ALLOCATOR=platform, and not on the CPU.
"""

import contextlib
import gc
from typing import Any, Literal

import jax

from fitroom.backends.contract import Device, MemoryReading
from fitroom.errors import BackendError

_KINDS: dict[str, Literal["gpu", "cpu"]] = {"gpu": "gpu", "cpu": "cpu"}


def devices() -> tuple[Device, ...]:
    """The devices of this process, JAX's default ones first and the CPU last. Asking starts JAX on them."""
    return tuple(
        Device(
            name=name,
            kind=_KINDS.get(found.platform, "other"),
            description=None if found.platform == "cpu" else found.device_kind,
        )
        for name, found in _local_devices().items()
    )


def read_memory(device: Device, *, wait: bool = True) -> MemoryReading:
    """The counters of a device, after pending work is done; without `wait` while it runs."""
    for array in jax.live_arrays() if wait else ():
        # JAX tells of a failed computation whoever waits for its array; that is the owner's to handle, not ours.
        with contextlib.suppress(jax.errors.JaxRuntimeError):
            array.block_until_ready()
    counted = _local_devices()[device.name].memory_stats() or {}
    return MemoryReading(
        in_use_bytes=counted.get("bytes_in_use"),
        peak_bytes=counted.get("peak_bytes_in_use"),
        reserved_bytes=counted.get("pool_bytes"),
        limit_bytes=counted.get("bytes_limit") or None,  # 0 is how it says that it has none
    )


def reset_peak(device: Device) -> None:
    """Always raises BackendError: JAX counts one peak per process, from its start to its end."""
    raise BackendError(
        f"JAX cannot reset the memory peak of {device.name}: it counts one peak per process.",
        hint="measure each step in a process of its own",
    )


def release() -> None:
    """Drop all compiled functions, with the constants they hold on the device, and collect Python's cycles.

    What it does not do. It never shrinks JAX's pool: free blocks stay with the process. Arrays that anything still
    refers to stay. Every jitted function, the user's too, is compiled again when it is next called.
    """
    jax.clear_caches()
    gc.collect()


def _local_devices() -> dict[str, Any]:
    found = list(jax.local_devices())
    if all(device.platform != "cpu" for device in found):
        with contextlib.suppress(RuntimeError):  # JAX_PLATFORMS may leave the CPU out
            found += jax.local_devices(backend="cpu")
    named: dict[str, Any] = {}
    for device in found:
        index = sum(name.startswith(f"{device.platform}:") for name in named)
        named[f"{device.platform}:{index}"] = device
    return named
