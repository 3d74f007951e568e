"""How long training waits for its next batch: whoever iterates over batches reports it here, whoever cares listens."""

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

OnWait = Callable[[float, float, int | None], None]
"""Called in the thread that waited: with the beginning and the end of the wait, in seconds by `time.perf_counter`, and
the number of samples in the batch, None where it is not known."""

_listeners: tuple[OnWait, ...] = ()
_lock = threading.Lock()


@contextmanager
def listening_to_waits(on_wait: OnWait) -> Iterator[None]:
    """Have `on_wait` called for each batch that a training asks for within the block."""
    global _listeners
    with _lock:
        _listeners = (*_listeners, on_wait)
    try:
        yield
    finally:
        with _lock:
            at = _listeners.index(on_wait)
            _listeners = _listeners[:at] + _listeners[at + 1 :]


def take_next(iterator: Iterator[Any]) -> Any:
    """Take the next batch of an iterator, and report how long that took. What the iterator raises is raised."""
    if not _listeners:
        return next(iterator)
    begin = time.perf_counter()
    batch = next(iterator)
    report_wait(begin)
    return batch


def report_wait(begin: float, samples: int | None = None) -> None:
    """Report a wait that began at `begin` and ends now, for a batch of so many samples."""
    end = time.perf_counter()
    for on_wait in _listeners:
        on_wait(begin, end, samples)


class TimedBatches(Iterator[Any]):
    """An iterator over batches whose waits are reported.

    >>> waits = []
    >>> with listening_to_waits(lambda begin, end, samples: waits.append(end - begin)):
    ...     list(TimedBatches([1, 2]))
    [1, 2]
    >>> len(waits)
    2
    """

    def __init__(self, batches: Iterable[Any]) -> None:
        self._batches = iter(batches)

    def __next__(self) -> Any:
        return take_next(self._batches)
