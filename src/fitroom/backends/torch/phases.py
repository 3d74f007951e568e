"""Where the phases of a step on PyTorch begin and end, without splitting the step."""

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

import keras
import torch

Mark = Literal["backward begins", "backward ends", "update begins", "update ends"]
OnMark = Callable[[Mark], None]

_PLACES = ((torch.Tensor, "backward"), (keras.optimizers.Optimizer, "apply"))
_MARKS: dict[str, tuple[Mark, Mark]] = {
    "backward": ("backward begins", "backward ends"),
    "apply": ("update begins", "update ends"),
}
_on_marks: tuple[OnMark, ...] = ()
_lock = threading.Lock()


@contextmanager
def marking_phases(on_mark: OnMark) -> Iterator[None]:
    """Have `on_mark` called where a backward pass and an update of Keras's optimizer begin and end, within the block.

    `Tensor.backward` and `Optimizer.apply` are what every step goes through: Keras's, fitroom's, and a loop of one's
    own. They are called as before.
    """
    global _on_marks
    with _lock:
        if not _on_marks:
            for owner, name in _PLACES:
                setattr(owner, name, _marked(getattr(owner, name), *_MARKS[name]))
        _on_marks = (*_on_marks, on_mark)
    try:
        yield
    finally:
        with _lock:
            at = _on_marks.index(on_mark)
            _on_marks = _on_marks[:at] + _on_marks[at + 1 :]
            if not _on_marks:
                for owner, name in _PLACES:
                    setattr(owner, name, getattr(owner, name).__wrapped__)


def _marked(own: Callable[..., Any], begins: Mark, ends: Mark) -> Callable[..., Any]:
    @functools.wraps(own)
    def call(*arguments: Any, **options: Any) -> Any:
        if torch.compiler.is_compiling():
            return own(*arguments, **options)
        for on_mark in _on_marks:
            on_mark(begins)
        try:
            return own(*arguments, **options)
        finally:
            for on_mark in _on_marks:
                on_mark(ends)

    return call
