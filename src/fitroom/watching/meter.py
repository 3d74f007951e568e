"""The memory that a training uses, on its device and on the host."""

from typing import TypedDict

from fitroom.backends.contract import Backend

NEARLY_FULL = 0.9
"""The share of the limit above which the user is warned."""


class MemoryUse(TypedDict):
    """One reading of the memory. None is unknown: a framework's memory on most CPUs."""

    in_use_bytes: int | None
    """Held by live tensors now, between two steps."""

    peak_bytes: int | None
    """The most in use since the reading before; on JAX, whose peak cannot be reset, since the process began."""

    reserved_bytes: int | None
    limit_bytes: int | None
    """The smaller of the budget and the allocator's limit."""

    host_bytes: int | None
    """Of this process in the host's memory."""


class MemoryMeter:
    """Reads the memory of the device that a backend trains on. It waits for queued work, so not after every batch.

    Each reading resets the peak. The peak of a longer time is the highest of its readings.
    """

    def __init__(self, backend: Backend, *, limit_bytes: int | None = None) -> None:
        self.backend = backend
        self.device = backend.devices()[0]
        self.limit_bytes = limit_bytes

    def read(self) -> MemoryUse:
        """Read the memory in use, and the peak since the last reading."""
        counted = self.backend.read_memory(self.device)
        if self.backend.can_reset_peak and counted.peak_bytes is not None:
            self.backend.reset_peak(self.device)
        return MemoryUse(
            in_use_bytes=counted.in_use_bytes or None,  # 0 is how TensorFlow says that it does not count
            peak_bytes=counted.peak_bytes or None,
            reserved_bytes=counted.reserved_bytes,
            limit_bytes=min(filter(None, (self.limit_bytes, counted.limit_bytes)), default=None),
            host_bytes=host_bytes(),
        )


def host_bytes() -> int | None:
    """The host memory of this process; None where the system does not tell."""
    import psutil

    try:
        return int(psutil.Process().memory_info().rss)
    except psutil.Error:
        return None
