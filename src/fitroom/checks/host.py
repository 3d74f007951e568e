"""The host: memory with its container's limit, swap, shared memory for workers, disk for checkpoints."""

import shutil
from collections.abc import Iterator
from pathlib import Path

from fitroom.checks.finding import Finding
from fitroom.units import format_bytes, used_of

_GIB = 1024**3
_LITTLE_MEMORY_BYTES = 2 * _GIB
_LITTLE_SHARED_BYTES = _GIB
_LITTLE_DISK_BYTES = 5 * _GIB
_NO_LIMIT_BYTES = 2**60
"""How the first version of control groups writes that there is no limit: nearly 2^63, in whole pages."""

_CGROUPS = (
    ("sys/fs/cgroup/memory.max", "sys/fs/cgroup/memory.current"),
    ("sys/fs/cgroup/memory/memory.limit_in_bytes", "sys/fs/cgroup/memory/memory.usage_in_bytes"),
)
"""Limit and use of the memory of this process's container, in both versions of control groups."""


def check_host(folder: Path, *, root: Path = Path("/")) -> Iterator[Finding]:
    """Check memory, swap, shared memory, and the disk that `folder` is on.

    Args:
        folder: where runs and their checkpoints will be.
        root: where /sys and /dev are.
    """
    yield from check_memory(root)
    yield from check_shared_memory(root / "dev/shm")
    yield from check_disk(folder)


def check_memory(root: Path = Path("/")) -> Iterator[Finding]:
    """Check the host's memory and swap; the limit of a container counts."""
    import psutil

    memory, swap = psutil.virtual_memory(), psutil.swap_memory()
    total_bytes, free_bytes, limit_bytes = int(memory.total), int(memory.available), None
    if found := read_cgroup(root):
        limit_bytes, used_bytes = found
        if limit_bytes < total_bytes:
            total_bytes, free_bytes = limit_bytes, min(free_bytes, max(0, limit_bytes - used_bytes))
        else:
            limit_bytes = None
    of_container = " that this container may use" if limit_bytes else ""
    yield Finding(
        status="warning" if free_bytes < _LITTLE_MEMORY_BYTES else "pass",
        name="host memory",
        found=f"{format_bytes(free_bytes)} free of {format_bytes(total_bytes)}{of_container}",
        fix="close other programs, or docker run --memory=16g ...  # out of it the kernel kills the training"
        if free_bytes < _LITTLE_MEMORY_BYTES
        else None,
        facts={"total_bytes": total_bytes, "free_bytes": free_bytes, "cgroup_limit_bytes": limit_bytes},
    )
    is_swapping = swap.total > 0 and swap.used > swap.total // 2 and free_bytes < 2 * _LITTLE_MEMORY_BYTES
    told = used_of(swap.used, swap.total) + " used" if swap.total else "none: out of memory ends the process at once"
    yield Finding(
        status="warning" if is_swapping else "pass",
        name="swap",
        found=told + (", with little memory free: input and checkpoints crawl" if is_swapping else ""),
        fix="close other programs, or a smaller shuffle buffer or cache" if is_swapping else None,
        facts={"total_bytes": int(swap.total), "used_bytes": int(swap.used)},
    )


def read_cgroup(root: Path = Path("/")) -> tuple[int, int] | None:
    """Limit and use of the memory of this process's container, in bytes; None where there is no limit."""
    for names in _CGROUPS:
        try:
            limit_bytes, used_bytes = (int((root / name).read_text()) for name in names)
        except (OSError, ValueError):  # other version, or "max"
            continue
        if limit_bytes < _NO_LIMIT_BYTES:
            return limit_bytes, used_bytes
    return None


def check_shared_memory(folder: Path) -> Iterator[Finding]:
    """Check the shared memory, through which worker processes hand over batches."""
    if not folder.is_dir():
        return
    size = shutil.disk_usage(folder)
    is_small = size.free < _LITTLE_SHARED_BYTES
    yield Finding(
        status="warning" if is_small else "pass",
        name="shared memory",
        found=f"{format_bytes(size.free)} free of {format_bytes(size.total)} in /dev/shm"
        + (
            ": worker processes (DataLoader, PyDataset) hand batches over in it, and end with a bus error"
            if is_small
            else ""
        ),
        fix="docker run --shm-size=8g ...  # or --ipc=host; on a plain machine: mount -o remount,size=8G /dev/shm"
        if is_small
        else None,
        facts={"total_bytes": size.total, "free_bytes": size.free},
    )


def check_disk(folder: Path) -> Iterator[Finding]:
    """Check the disk that a folder is on, which may not exist yet."""
    place = folder.absolute()
    while not place.exists():
        place = place.parent
    size = shutil.disk_usage(place)
    is_small = size.free < _LITTLE_DISK_BYTES
    yield Finding(
        status="warning" if is_small else "pass",
        name="disk",
        found=f"{format_bytes(size.free)} free for checkpoints in {place}"
        + (
            ": a checkpoint takes three times the weights with Adam, and two are kept while one is written"
            if is_small
            else ""
        ),
        fix="--run-dir on another disk, or make room" if is_small else None,
        facts={"folder": str(place), "total_bytes": size.total, "free_bytes": size.free},
    )
