"""Whether models of earlier calls of `fit` still take memory that nobody seems to want."""

import gc
import weakref
from dataclasses import dataclass
from typing import Any

from fitroom.events import EventKind, Events
from fitroom.holders import Holder, find_holders
from fitroom.units import format_bytes

HOW_TO = "docs/howto/training_in_a_loop.md"

_FEWEST = 3
_MATTERS_BYTES = 256 * 2**20

_LEFT_BY = ("History", "Callback", "(an error)", "EarlyStopping", "ModelCheckpoint", "TensorBoard")
_LEFT_IN = ("traceback", "notebook", "registry")


@dataclass(frozen=True, kw_only=True)
class _Fitted:
    model: Any
    """A weak reference."""

    shapes: tuple[tuple[int, ...], ...]
    bytes: int


_fitted: list[_Fitted] = []
_said = False


def note_model(model: Any, events: Events) -> None:
    """Remember that a model is being fitted; the first time that several before it are left over, say so.

    Left over is a model of the same shapes that is held by nothing but a History, a callback, an error, or what a
    notebook keeps. One that a variable or a list holds, such as a teacher or an ensemble, is in use.
    """
    global _said
    _fitted[:] = [each for each in _fitted if each.model() is not None]
    shapes = tuple(tuple(weight.shape) for weight in model.weights)
    earlier = [each for each in _fitted if each.shapes == shapes and each.model() is not model]
    if not _said and _are_many(earlier):
        gc.collect()
        earlier = [each for each in earlier if each.model() is not None]
        if _are_many(earlier) and (left := _left_over(earlier)):
            _said = True
            size = format_bytes(sum(each.bytes for each in left))
            events.tell(
                EventKind.EARLIER_MODELS,
                f"{len(left)} models of earlier rounds still take {size} or more; {HOW_TO} says how to free them.",
            )
    if all(each.model() is not model for each in _fitted):
        # What a model takes beside its weights, such as the optimizer's slots, is not there yet.
        size_bytes = sum(_bytes_of(weight) for weight in model.weights)
        _fitted.append(_Fitted(model=weakref.ref(model), shapes=shapes, bytes=size_bytes))


def _are_many(earlier: list[_Fitted]) -> bool:
    return len(earlier) >= _FEWEST and sum(each.bytes for each in earlier) >= _MATTERS_BYTES


def _left_over(earlier: list[_Fitted]) -> list[_Fitted]:
    """Those that nothing holds but what was left by accident; none where these are too few to matter."""
    holders = find_holders([each.model() for each in earlier])
    left = [each for each, holder in zip(earlier, holders, strict=True) if _is_by_accident(holder)]
    return left if _are_many(left) else []


def _is_by_accident(holder: Holder) -> bool:
    return holder.kind in _LEFT_IN or any(word in each for each in holder.by for word in _LEFT_BY)


def _bytes_of(weight: Any) -> int:
    import numpy as np

    item = 2 if "16" in str(weight.dtype) else 4 if "32" in str(weight.dtype) else 8 if "64" in str(weight.dtype) else 1
    return int(np.prod(tuple(weight.shape), dtype=np.int64)) * item
