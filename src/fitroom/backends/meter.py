"""The memory that a training uses, on its device and on the host."""

import threading
from typing import ClassVar, TypedDict
from weakref import WeakSet

from fitroom.backends.contract import Backend, Device
from fitroom.units import used_of

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
    """Reads the memory of a device of a backend, by default the one that it trains on.

    Each reading resets the framework's peak. The peak of a longer time is the highest of its readings. Several meters
    of one device do not disturb each other: what one reads before it resets, the others are told.
    """

    _meters: ClassVar["WeakSet[MemoryMeter]"] = WeakSet()
    _lock: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, backend: Backend, *, device: Device | None = None, limit_bytes: int | None = None) -> None:
        self.backend = backend
        self.device = device or backend.devices()[0]
        self.limit_bytes = limit_bytes
        self._told_peak_bytes = 0
        """The highest peak that another meter read since this one's last reading."""
        with self._lock:
            self._meters.add(self)

    def read(self, *, wait: bool = True) -> MemoryUse:
        """Read the memory in use, and the peak since the last reading.

        Args:
            wait: Wait for queued work, so that what is in use is that of between two steps. Without it the reading is
                of the moment, costs microseconds, and may be taken in any thread.
        """
        with self._lock:
            counted = self.backend.read_memory(self.device, wait=wait)
            if self.backend.can_reset_peak and counted.peak_bytes is not None:
                self.backend.reset_peak(self.device, wait=wait)
                self._tell_others(counted.peak_bytes)
            peak_bytes = max(self._told_peak_bytes, counted.peak_bytes or 0)
            self._told_peak_bytes = 0
        return MemoryUse(
            in_use_bytes=counted.in_use_bytes or None,  # 0 is how TensorFlow says that it does not count
            peak_bytes=peak_bytes or None,
            reserved_bytes=counted.reserved_bytes,
            limit_bytes=min(filter(None, (self.limit_bytes, counted.limit_bytes)), default=None),
            host_bytes=host_bytes(),
        )

    def tell_peak(self, peak_bytes: int) -> None:
        """Another meter of the device has read this peak, and reset it."""
        self._told_peak_bytes = max(self._told_peak_bytes, peak_bytes)

    def _tell_others(self, peak_bytes: int) -> None:
        for meter in self._meters:
            if meter is not self and (meter.backend.name, meter.device) == (self.backend.name, self.device):
                meter.tell_peak(peak_bytes)


class LimitWarning:
    """Says once that memory is nearly full.

    >>> warning = LimitWarning()
    >>> warning.check(80, 100), warning.check(95, 100), warning.check(99, 100)
    (None, 'memory is nearly full: 95 of 100 B were in use at once.', None)
    """

    def __init__(self, share: float = NEARLY_FULL) -> None:
        self.share = share
        self._has_warned = False

    def check(self, peak_bytes: int | None, limit_bytes: int | None) -> str | None:
        """Return the warning the first time that a peak reaches the share of the limit, else None."""
        if self._has_warned or peak_bytes is None or limit_bytes is None or peak_bytes < self.share * limit_bytes:
            return None
        self._has_warned = True
        return f"memory is nearly full: {used_of(peak_bytes, limit_bytes)} were in use at once."


def host_bytes() -> int | None:
    """The host memory of this process; None where the system does not tell."""
    import psutil

    try:
        return int(psutil.Process().memory_info().rss)
    except psutil.Error:
        return None
