"""Pictures per second while one batch follows another."""

import time
from collections import deque
from collections.abc import Callable

WINDOW_SECONDS = 10.0


class SteadyRate:
    """Counts stretches of batches that end when the device is done; the last ten seconds of them are the rate.

    Waiting for pictures counts, since that is part of how fast training is. Compiling, validation and checkpoints do
    not: whoever knows of one breaks the stretch off, and what it had counted goes with it.

    >>> clock = iter([0, 2, 5, 6]).__next__
    >>> rate = SteadyRate(clock=clock)
    >>> rate.begin(); rate.add(64); rate.add(64); rate.close(); rate.per_second
    64.0
    >>> rate.begin(); rate.add(64); rate.break_off(); rate.per_second
    64.0
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since: float | None = None
        self._pictures = 0
        self._stretches: deque[tuple[float, int]] = deque()

    @property
    def per_second(self) -> float | None:
        """None until a stretch was closed."""
        seconds = sum(seconds for seconds, _ in self._stretches)
        return sum(pictures for _, pictures in self._stretches) / seconds if seconds else None

    def begin(self) -> None:
        """A batch begins: unless a stretch is open, one is now."""
        if self._since is None:
            self._since, self._pictures = self._clock(), 0

    def add(self, pictures: int) -> None:
        """A batch of so many was done."""
        self._pictures += pictures

    def close(self) -> None:
        """The device has done what was counted: a stretch ends, and with the next batch another begins."""
        if self._since is not None and self._pictures:
            self._stretches.append((self._clock() - self._since, self._pictures))
            while sum(seconds for seconds, _ in self._stretches) - self._stretches[0][0] > WINDOW_SECONDS:
                self._stretches.popleft()
        self._since = None

    def break_off(self) -> None:
        """Something other than training took time: the open stretch does not count."""
        self._since = None
