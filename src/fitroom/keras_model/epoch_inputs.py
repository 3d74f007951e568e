"""The batches that Keras's own `fit` iterates over, seen from outside."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

Wrap = Callable[[Any, int | None], Any]
"""Called with what Keras iterates over, and the batch size where it is known; returns what it iterates over instead."""

_wraps: tuple[Wrap, ...] = ()
_own: dict[type, Any] = {}
_lock = threading.Lock()


@contextmanager
def wrapping_inputs(wrap: Wrap) -> Iterator[None]:
    """Have `fit` and `evaluate` iterate over what `wrap` returns, from the next epoch on and within the block.

    Does nothing in a version of Keras that has no such place.
    """
    global _wraps
    with _lock:
        if not _wraps:
            _patch()
        _wraps = (*_wraps, wrap)
    try:
        yield
    finally:
        with _lock:
            at = _wraps.index(wrap)
            _wraps = _wraps[:at] + _wraps[at + 1 :]
            if not _wraps:
                _restore()


def _patch() -> None:
    try:
        from keras.src.trainers.epoch_iterator import EpochIterator
    except ImportError:
        return
    # Each backend's class has its own method; only the backend in use has been imported.
    for kind in EpochIterator.__subclasses__():
        if "_get_iterator" in vars(kind):
            _own[kind] = vars(kind)["_get_iterator"]
            kind._get_iterator = _wrapped(_own[kind])


def _restore() -> None:
    for kind, own in _own.items():
        kind._get_iterator = own  # type: ignore[attr-defined]
    _own.clear()


def _wrapped(own: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def _get_iterator(self: Any) -> Any:
        found = own(self)
        for wrap in _wraps:
            found = wrap(found, getattr(self.data_adapter, "batch_size", None))
        return found

    return _get_iterator
