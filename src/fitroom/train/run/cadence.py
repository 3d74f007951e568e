"""When a checkpoint is due."""

import time
from collections.abc import Callable

EVERY_SECONDS = 60.0
MOST_SHARE = 0.02
"""The most of the time that checkpoints within an epoch may hold up training."""


class Cadence:
    """Says after each batch whether to write a checkpoint.

    Every so many batches, where a number was asked for. Otherwise every `every_seconds`, and less often where holding
    up training for one takes more than 2 % of that: a checkpoint of 3 s is due every 150 s. An epoch's end is always
    due.

    >>> clock = iter(range(0, 1000, 10)).__next__
    >>> cadence = Cadence(clock=clock)
    >>> [cadence.is_due() for _ in range(7)]
    [False, False, False, False, False, True, True]
    >>> cadence.wrote(held_up_seconds=0.1)
    >>> cadence.is_due(), cadence.is_due(at_epoch_end=True)
    (False, True)
    """

    def __init__(
        self,
        *,
        every_batches: int | None = None,
        every_seconds: float = EVERY_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._every_batches = every_batches
        self._asked_seconds = every_seconds
        self._every_seconds = every_seconds
        self._clock = clock
        self._num_batches = 0
        self._last = clock()

    def is_due(self, *, at_epoch_end: bool = False) -> bool:
        """Whether to write one now. To be asked once a batch, and once at an epoch's end."""
        self._num_batches += not at_epoch_end
        if at_epoch_end:
            return True
        if self._every_batches is not None:
            return self._num_batches >= self._every_batches
        return self._clock() - self._last >= self._every_seconds

    def wrote(self, *, held_up_seconds: float) -> None:
        """A checkpoint was taken, and training stood still so long."""
        self._num_batches = 0
        self._last = self._clock()
        self._every_seconds = max(self._asked_seconds, held_up_seconds / MOST_SHARE)
