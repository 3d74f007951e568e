"""What the time of a training goes into."""

import time
from collections.abc import Callable, Mapping


class TimeSpent:
    """A stopwatch with names: each lap goes to what was done in it.

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
        """The first lap begins now; what came before counts for nothing."""
        self._since = self._clock()

    def lap(self, name: str) -> None:
        """The time since the last lap, or since the start, was spent on `name`."""
        now = self._clock()
        if self._since is not None:
            self.seconds[name] = self.seconds.get(name, 0.0) + now - self._since
        self._since = now

    def restore(self, seconds: Mapping[str, float]) -> None:
        """What a run had spent before it was resumed."""
        self.seconds = dict(seconds)
