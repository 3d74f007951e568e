"""Which arrays of the framework are alive, and whose they are: a model's, an optimizer's, a metric's."""

import gc
import weakref
from collections.abc import Iterable
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

    kinds = {
        keras.Model: "model",
        keras.optimizers.Optimizer: "optimizer",
        keras.metrics.Metric: "metric",
        keras.Layer: "layer",
    }
    words: dict[type, str | None] = {}  # asked once a type, since there are a million objects of few types
    found: dict[str, list[Any]] = {word: [] for word in kinds.values()}
    for each in gc.get_objects():
        kind = type(each)
        if kind not in words:
            words[kind] = next((word for base, word in kinds.items() if issubclass(kind, base)), None)
        if (word := words[kind]) is not None:
            found[word].append(each)
    inner = {id(layer) for model in found["model"] for layer in _layers_of(model)}
    found["model"].sort(key=lambda model: id(model) not in inner)  # the outermost last, which has the last word
    owned: dict[int, str] = {}
    for word in reversed(found):
        for owner in found[word]:
            for variable in _variables_of(owner):
                value = variable._value
                owned[id(value)] = f"{word} {owner.name!r}"
                if (gradient := getattr(value, "grad", None)) is not None:  # PyTorch keeps it with the weight
                    owned[id(gradient)] = f"{word} {owner.name!r}"
    return owned


def _layers_of(model: Any) -> Iterable[Any]:
    try:
        return [*model.layers, getattr(model, "_functional", None)]
    except (AttributeError, ValueError):
        return ()


def _variables_of(owner: Any) -> Iterable[Any]:
    """The variables of a layer, model, metric or optimizer; none of one that is only half made."""
    try:
        return list(owner.weights if hasattr(owner, "layers") else owner.variables)
    except (AttributeError, ValueError, RuntimeError):
        return ()
