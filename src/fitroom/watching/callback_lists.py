"""Callbacks that every training within a block gets, whoever starts it."""

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import keras  # noqa: TID253 - whoever imports this trains

_added: list[Any] = []


@contextmanager
def adding_callback(callback: Any) -> Iterator[None]:
    """Add a callback to every `CallbackList` made within the block: those of `fit`, `evaluate` and `predict`.

    Keras's own loops and fitroom's make one each. The callback comes first, so that the others see what it puts into
    the logs; where the user gave it already, it stays where it is.
    """
    kind = keras.callbacks.CallbackList
    if not _added:
        kind.__init__ = _adding(kind.__init__)
    _added.append(callback)
    try:
        yield
    finally:
        _added.remove(callback)
        if not _added:
            kind.__init__ = kind.__init__.__wrapped__


def _adding(own: Any) -> Any:
    @functools.wraps(own)
    def init(self: Any, callbacks: Any = None, *arguments: Any, **options: Any) -> None:
        given = keras.tree.flatten(callbacks) if callbacks else []
        new = [one for one in _added if all(one is not each for each in given)]
        own(self, [*new, *given], *arguments, **options)

    return init
