"""How fast a training is, in images per second, and what its time goes into."""

import time
from collections import deque
from collections.abc import Callable, Mapping

WINDOW_SECONDS = 10.0


class SteadyRate:
    """Images per second over intervals of steady training; the last ten seconds of them give the rate.

    An interval ends when the device has finished its batches. Waiting for data counts, since it is part of how fast
    training is. Compiling, validation and checkpoints do not: the caller discards the interval that they fall into.

    >>> clock = iter([0, 2, 5, 6]).__next__
    >>> rate = SteadyRate(clock=clock)
    >>> rate.begin(); rate.add(64); rate.add(64); rate.close(); rate.per_second
    64.0
    >>> rate.begin(); rate.add(64); rate.discard(); rate.per_second
    64.0
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since: float | None = None
        self._images = 0
        self._intervals: deque[tuple[float, int]] = deque()

    @property
    def per_second(self) -> float | None:
        """The rate; None until an interval was closed."""
        seconds = sum(seconds for seconds, _ in self._intervals)
        return sum(images for _, images in self._intervals) / seconds if seconds else None

    def begin(self) -> None:
        """Note that a batch begins, which opens an interval unless one is open."""
        if self._since is None:
            self._since, self._images = self._clock(), 0

    def add(self, images: int) -> None:
        """Count the images of a finished batch."""
        self._images += images

    def close(self) -> None:
        """Close the interval: the device has finished what was counted."""
        if self._since is not None and self._images:
            self._intervals.append((self._clock() - self._since, self._images))
            while sum(seconds for seconds, _ in self._intervals) - self._intervals[0][0] > WINDOW_SECONDS:
                self._intervals.popleft()
        self._since = None

    def discard(self) -> None:
        """Discard the open interval, in which something other than training took time."""
        self._since = None


class TimeSpent:
    """A stopwatch with named laps: the seconds spent on each activity.

    >>> spent = TimeSpent(clock=iter([0.0, 20.0, 25.0, 35.0]).__next__)
    >>> spent.start(); spent.lap("compiling"); spent.lap("training"); spent.lap("training")
    >>> spent.seconds
    {'compiling': 20.0, 'training': 15.0}
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.seconds: dict[str, float] = {}
        self._clock = clock
        self._since: float | None = None

    def start(self) -> None:
        """Start the first lap."""
        self._since = self._clock()

    def lap(self, name: str) -> None:
        """Add the time since the last lap, or since the start, to `name`."""
        now = self._clock()
        if self._since is not None:
            self.seconds[name] = self.seconds.get(name, 0.0) + now - self._since
        self._since = now

    def restore(self, seconds: Mapping[str, float]) -> None:
        """Restore the seconds that a run had spent before it was resumed."""
        self.seconds = dict(seconds)
