"""Which arrays of the framework are alive, and whose they are: a model's, an optimizer's, a metric's."""

import gc
import weakref
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from fitroom.backends.contract import Backend

OTHERS = "other arrays"


@dataclass(frozen=True, kw_only=True)
class LiveArray:
    """One array, without holding it."""

    reference: Any
    """A weak reference to it."""

    bytes: int
    owner: str
    """Such as "model 'sequential_1'", "optimizer 'adam'", or OTHERS."""


def list_live_arrays(backend: Backend) -> dict[int, LiveArray]:
    """All arrays that are alive, by their `id`."""
    owners = _owners_of_arrays()
    return {
        id(array): LiveArray(reference=weakref.ref(array), bytes=size, owner=owners.get(id(array), OTHERS))
        for array, size in backend.live_arrays()
    }


def born_since(before: dict[int, LiveArray], now: dict[int, LiveArray]) -> dict[int, LiveArray]:
    """Those of `now` that were not there before; an `id` may have been used again."""
    return {key: array for key, array in now.items() if key not in before or before[key].reference() is None}


def sum_by_owner(arrays: Iterable[LiveArray]) -> dict[str, list[LiveArray]]:
    """The arrays of each owner, the owner with the most bytes first."""
    groups: dict[str, list[LiveArray]] = {}
    for array in arrays:
        groups.setdefault(array.owner, []).append(array)
    return dict(sorted(groups.items(), key=lambda item: -sum(array.bytes for array in item[1])))


def _owners_of_arrays() -> dict[int, str]:
    """By the `id` of an array, what of Keras's has it as the value of a variable. The outermost model counts."""
    import keras

    kinds = (
        (keras.metrics.Metric, "metric"),
        (keras.Layer, "layer"),
        (keras.optimizers.Optimizer, "optimizer"),
        (keras.Model, "model"),
    )
    owned: dict[int, str] = {}
    found: list[list[Any]] = [[] for _ in kinds]
    for each in gc.get_objects():
        for place, (kind, _) in enumerate(reversed(kinds)):
            if issubclass(type(each), kind):
                found[len(kinds) - 1 - place].append(each)
                break
    for group, (_, word) in zip(found, kinds, strict=True):
        for owner in group:
            for variable in _variables_of(owner):
                owned[id(getattr(variable, "_value", None))] = f"{word} {owner.name!r}"
    return owned


def _variables_of(owner: Any) -> Iterator[Any]:
    """The variables of a layer, model, metric or optimizer; none of one that is only half made."""
    try:
        found = owner.variables
    except (AttributeError, ValueError, RuntimeError):
        return
    if hasattr(owner, "layers"):  # a model counts its optimizer's and its metrics' as its own elsewhere
        yield from owner.weights
    elif isinstance(found, Iterable):
        yield from found
