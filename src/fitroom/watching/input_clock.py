"""The share of training time in which the device had nothing to do because the next batch was not there."""

import threading
import time
from collections.abc import Callable

Totals = tuple[float | None, float]
"""The seconds spent waiting for input, None where nobody tells, and the seconds of training."""


def wait_share(before: Totals, after: Totals) -> float | None:
    """The share of training time spent waiting between two moments; None where it is not known.

    >>> wait_share((1.0, 10.0), (2.0, 14.0)), wait_share((None, 0.0), (None, 4.0))
    (0.25, None)
    """
    trained = after[1] - before[1]
    if after[0] is None or trained <= 0:
        return None
    return min(1.0, (after[0] - (before[0] or 0.0)) / trained)


class InputClock:
    """Counts training time and, within it, the time spent waiting for input.

    A wait is the time from asking for the next batch until it is there, in the thread that trains. A framework that
    works ahead may still compute the batches before; that part of a wait costs nothing and is not counted: a wait
    counts from the moment at which all earlier batches were done.

    The first batch of a training is left out, since a step is compiled for it, and so is validation.

    >>> clock = InputClock(clock=lambda: 10.0)
    >>> clock.begin_batch(); clock.end_batch(at=9.0)
    >>> clock.begin_batch(); clock.end_batch(at=12.0)  # training time counts from here
    >>> clock.begin_batch(); clock.add_wait(11.0, 14.0)
    >>> clock.totals(at=20.0)
    (2.0, 10.0)
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.count_outside: Callable[[], float] | None = None
        """Returns the seconds of all waits so far as the framework counts them, where Python cannot see the waits."""
        self._clock = clock
        self._lock = threading.Lock()
        self._wait_seconds = self._train_seconds = self._outside_before = 0.0
        self._since: float | None = None
        self._has_waits = False
        self.restart()

    def restart(self) -> None:
        """Another training begins. The totals stay."""
        self.pause()
        with self._lock:
            self._begun = self._ended = 0
            self._last_end = 0.0
            self._is_warm = False
            self._waits_come_first: bool | None = None

    def begin_batch(self) -> None:
        """A step is about to be dispatched."""
        with self._lock:
            self._begun += 1
            if self._begun == 2 and not self._is_warm:
                self._is_warm = True
                self._start()

    def end_batch(self, at: float | None = None) -> None:
        """A step is done: its results are there. May come from another thread, and after the next step began."""
        with self._lock:
            self._ended += 1
            self._last_end = self._clock() if at is None else at

    def add_wait(self, begin: float, end: float) -> None:
        """The training thread waited for a batch from `begin` to `end`."""
        with self._lock:
            if self._waits_come_first is None:  # else the batch is taken within the step
                self._waits_come_first = self._begun == 0
            before = self._begun if self._waits_come_first else self._begun - 1
            self._has_waits = True
            if self._since is not None and self._ended >= before:
                self._wait_seconds += max(0.0, end - max(begin, self._last_end, self._since))

    def pause(self) -> None:
        """What follows is no training: validation, or the end of an epoch."""
        with self._lock:
            if self._since is not None:
                self._wait_seconds, self._train_seconds = self._totals(self._clock())
                self._has_waits = self._has_waits or self.count_outside is not None
                self._since = None

    def resume(self) -> None:
        """Training goes on."""
        with self._lock:
            if self._is_warm and self._since is None:
                self._start()

    def totals(self, at: float | None = None) -> Totals:
        """The seconds so far."""
        with self._lock:
            waited, trained = self._totals(self._clock() if at is None else at)
            return (waited if self._has_waits or self.count_outside else None), trained

    def _start(self) -> None:
        self._since = self._clock()
        self._outside_before = self.count_outside() if self.count_outside else 0.0

    def _totals(self, now: float) -> tuple[float, float]:
        if self._since is None:
            return self._wait_seconds, self._train_seconds
        outside = self.count_outside() - self._outside_before if self.count_outside else 0.0
        return self._wait_seconds + outside, self._train_seconds + now - self._since
