"""The description of a card that the XLA compiler takes, so that it lays out a step for a card that is not there."""

from dataclasses import dataclass

from fitroom.cards.catalogue import Card
from fitroom.errors import InputError

_KIB = 1024


@dataclass(frozen=True, kw_only=True)
class _Limits:
    """What one streaming multiprocessor of a compute capability can hold."""

    threads: int
    shared_kib: int
    shared_kib_per_block: int
    """The most that a block can ask for; 48 KiB without asking on every capability."""

    fp32_lanes: int


# From the CUDA programming guide, appendix "Compute Capabilities", the tables "Technical Specifications per Compute
# Capability" and "Throughput of Native Arithmetic Instructions":
# https://docs.nvidia.com/cuda/cuda-c-programming-guide/#compute-capabilities
# Registers (65,536), threads per block (1,024) and the grid limits are the same for all of them.
#
# The compiler of CUDA 13 lays out memory for all of these. For 6.0, 6.1 and 7.0 it then fails in the assembler
# (`ptxas`), which no longer knows them; buffer assignment is complete and dumped by that time.
_LIMITS = {
    (6, 0): _Limits(threads=2048, shared_kib=64, shared_kib_per_block=48, fp32_lanes=64),
    (6, 1): _Limits(threads=2048, shared_kib=96, shared_kib_per_block=48, fp32_lanes=128),
    (7, 0): _Limits(threads=2048, shared_kib=96, shared_kib_per_block=96, fp32_lanes=64),
    (7, 5): _Limits(threads=1024, shared_kib=64, shared_kib_per_block=64, fp32_lanes=64),
    (8, 0): _Limits(threads=2048, shared_kib=164, shared_kib_per_block=163, fp32_lanes=64),
    (8, 6): _Limits(threads=1536, shared_kib=100, shared_kib_per_block=99, fp32_lanes=128),
    (8, 9): _Limits(threads=1536, shared_kib=100, shared_kib_per_block=99, fp32_lanes=128),
    (9, 0): _Limits(threads=2048, shared_kib=228, shared_kib_per_block=227, fp32_lanes=128),
    (10, 0): _Limits(threads=2048, shared_kib=228, shared_kib_per_block=227, fp32_lanes=128),
    (12, 0): _Limits(threads=1536, shared_kib=100, shared_kib_per_block=99, fp32_lanes=128),
}


def threads_per_multiprocessor(card: Card) -> int | None:
    """How many threads one multiprocessor holds; None for cards that are not NVIDIA's."""
    limits = _LIMITS.get(card.compute_capability) if card.compute_capability else None
    return limits.threads if limits else None


def target_description(card: Card, limit_bytes: int) -> str:
    """The target to compile for without a GPU, as a `GpuTargetConfigProto` in text form.

    `limit_bytes` is the limit of the framework's allocator, under which XLA may decide to recompute by itself.
    """
    limits = _LIMITS.get(card.compute_capability) if card.compute_capability else None
    if card.compute_capability is None or limits is None or card.l2_bytes is None:
        raise InputError(
            f"The XLA compiler cannot be asked about this card: it is in the catalogue for budgets only. "
            f"Received: {card.name!r} by {card.vendor}.",
            hint="pick an NVIDIA card for the compiler's sake, and this card's memory as `--limit` or `--budget`",
        )
    if limit_bytes <= 0:
        raise InputError(f"`limit_bytes` must be positive. Received: limit_bytes={limit_bytes}.")
    major, minor = card.compute_capability
    device_info = {
        "core_count": card.sm_count,
        "device_memory_size": _memory_bytes_for(limit_bytes),
        "threads_per_warp": 32,
        "threads_per_block_limit": 1024,
        "threads_per_core_limit": limits.threads,
        "shared_memory_per_block": 48 * _KIB,
        "shared_memory_per_core": limits.shared_kib * _KIB,
        "shared_memory_per_block_optin": limits.shared_kib_per_block * _KIB,
        "registers_per_core_limit": 65536,
        "registers_per_block_limit": 65536,
        "block_dim_limit_x": 2**31 - 1,
        "block_dim_limit_y": 65535,
        "block_dim_limit_z": 65535,
        "fpus_per_core": limits.fp32_lanes,
        "memory_bandwidth": card.bandwidth_bytes_per_second,
        "l2_cache_size": card.l2_bytes,
        "clock_rate_ghz": card.clock_ghz,
    }
    fields = " ".join(f"{name}: {value}" for name, value in device_info.items())
    capability = f"cuda_compute_capability {{ major: {major} minor: {minor} }}"
    return f'gpu_device_info {{ {capability} {fields} }} platform_name: "CUDA"'


def _memory_bytes_for(limit_bytes: int) -> int:
    # With a GPU, XLA recomputes when a step would not fit the allocator's real limit. Without one it takes
    # `device_memory_size * 80 / 100` for that limit, so the smallest memory is given of which that is `limit_bytes`.
    return -(-limit_bytes * 100 // 80)
