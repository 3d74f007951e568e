"""How much memory the host has to spare."""

from pathlib import Path

_CONTAINER = Path("/sys/fs/cgroup")


def available_bytes() -> int:
    """What can be taken without the system running short, in a container without that running short."""
    import psutil

    free = int(psutil.virtual_memory().available)
    try:
        limit, used = ((_CONTAINER / name).read_text() for name in ("memory.max", "memory.current"))
        return min(free, max(0, int(limit) - int(used)))
    except (OSError, ValueError):  # no container, or one without a limit
        return free
