"""Memory of the host: how much is available, and a limit on what decoding threads use together."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class MemoryPool:
    """A number of bytes that threads reserve before they allocate, so that all of them together stay below it.

    >>> pool = MemoryPool(100)
    >>> with pool.reserve(60), pool.reserve(40):
    ...     pool.free_bytes
    0
    """

    def __init__(self, total_bytes: int) -> None:
        self.total_bytes = self.free_bytes = total_bytes
        self._changed = threading.Condition()

    @contextmanager
    def reserve(self, size_bytes: int) -> Iterator[None]:
        """Wait until so many bytes are free, and hold them. A size above the total waits for all of it."""
        size_bytes = min(size_bytes, self.total_bytes)
        with self._changed:
            self._changed.wait_for(lambda: self.free_bytes >= size_bytes)
            self.free_bytes -= size_bytes
        try:
            yield
        finally:
            with self._changed:
                self.free_bytes += size_bytes
                self._changed.notify_all()


_CGROUP = Path("/sys/fs/cgroup")


def available_bytes() -> int:
    """How much memory can be allocated before the system, or the container that this process runs in, runs short."""
    import psutil

    free = int(psutil.virtual_memory().available)
    try:
        limit, used = ((_CGROUP / name).read_text() for name in ("memory.max", "memory.current"))
        return min(free, max(0, int(limit) - int(used)))
    except (OSError, ValueError):  # no container, or one without a limit
        return free
