"""The batches that Keras's own `fit` iterates over, seen from outside."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

Wrap = Callable[[Any, int | None, Any], Any]
"""Called with what Keras iterates over, the batch size and the user's dataset, None where they are not known; returns
what Keras iterates over instead."""

_DATASETS = ("py_dataset", "generator", "_dataset", "_dataloader")
"""Where Keras's adapters keep what the user gave."""

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
        adapter = self.data_adapter
        kept = (getattr(adapter, name, None) for name in _DATASETS)
        dataset = next((each for each in kept if each is not None), None)
        for wrap in _wraps:
            found = wrap(found, getattr(adapter, "batch_size", None), dataset)
        return found

    return _get_iterator
