"""What building changes about a model, kept so that a build that fails can be undone.

A layer that runs out of memory between its kernel and its bias has a kernel and is not built: built again it would have
two. And Keras keeps a list of variables that wait for their values, which it empties when all have them: after a
failure the next model that is built, any model, finds those of this one there and stops.
"""

import random
from collections.abc import Iterator
from typing import Any


class BuildState:
    """The attributes of a model, its layers, optimizer, losses and metrics, and the collections among them."""

    def __init__(self, model: Any) -> None:
        found = list(_reachable(model))
        self._objects = [(each, dict(vars(each))) for each in found if not _is_collection(each)]
        self._collections = [(each, _copy(each)) for each in found if _is_collection(each)]
        self._random = random.getstate()  # from which layers that are made while building draw their seeds

    def restore(self) -> None:
        """Put it all back."""
        from keras.src.backend.common import global_state  # no public name leads to variables that wait for values

        global_state.set_global_attribute("uninitialized_variables", [])
        for each, attributes in self._objects:
            vars(each).clear()
            vars(each).update(attributes)
        for collection, content in self._collections:
            _fill(collection, content)
        random.setstate(self._random)


def _reachable(model: Any) -> Iterator[Any]:
    """The model and all of Keras's kind that can be reached from it, with the collections on the way."""
    import keras

    kinds = (keras.layers.Layer, keras.metrics.Metric, keras.optimizers.Optimizer, keras.losses.Loss)
    seen: set[int] = set()
    waiting = [model]
    while waiting:
        each = waiting.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        if issubclass(type(each), dict):
            waiting += each.values()
        elif issubclass(type(each), list | tuple | set | frozenset):
            waiting += each
        elif isinstance(each, kinds) or _is_inside_of_keras(each):
            waiting += vars(each).values()
        else:
            continue
        if not isinstance(each, tuple | frozenset):
            yield each


def _is_inside_of_keras(value: Any) -> bool:
    """Whether it is one of Keras's helpers: trackers, lists of metrics. Building changes no value of a variable."""
    import keras

    kind = type(value)
    is_keras = kind.__module__.startswith("keras.src.") and hasattr(value, "__dict__")
    return is_keras and not isinstance(value, keras.Variable | keras.KerasTensor | type)


def _is_collection(value: Any) -> bool:
    """By its type: TensorFlow has stand-ins for a dict that call themselves one and are none."""
    return issubclass(type(value), list | dict | set)


def _copy(collection: Any) -> Any:
    if isinstance(collection, dict):
        return dict(collection)
    return list(collection)


def _fill(collection: Any, content: Any) -> None:
    """By the plain kind's own methods: those of Keras's kinds would track what is put in anew."""
    if isinstance(collection, dict):
        dict.clear(collection)
        dict.update(collection, content)
    elif isinstance(collection, set):
        set.clear(collection)
        set.update(collection, content)
    else:
        list.clear(collection)
        list.extend(collection, content)
