"""A round of a loop on TensorFlow: which tensors are alive, and what its end gives back.

TensorFlow keeps the gradient of every `tf.custom_gradient` that was traced in a registry, for as long as the process
lives. The gradient keeps the graph it was traced in, and the graph its variables. The update of every Keras optimizer
has such a gradient, so that a model which `fit` has trained never goes away: neither `del`, nor a collection of
garbage, nor `clear_session` frees its weights.

And it keeps a kernel for every distinct operation that was run eagerly. The one that makes a variable is distinct for
each variable: 36 KB of the host's memory for each weight, slot and metric that there ever was (TensorFlow 2.21).
Emptied, the cache leaves some 50 bytes for each kernel that was made, in a list that TensorFlow never empties.

Programs that XLA compiled stay on the host whatever becomes of their functions: TensorFlow's cache of them drops none.
A round can only say so.
"""

import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf
from tensorflow.python.eager import context
from tensorflow.python.framework import ops

_CUSTOM = "CustomGradient-"
_HANDLES = (tf.resource, tf.variant)
_PARKED = "fitroom_parked_gradients"

_KEPT_PROGRAMS = (
    "TensorFlow keeps what XLA compiled for this round's models on the host until the process ends; compile with "
    "jit_compile=False, or run each round in a process of its own by fitroom.trials."
)

_outside: frozenset[str] | None = None
"""Names that were registered before the first round of this process; they are left alone."""


def live_arrays() -> list[tuple[Any, int]]:
    """The variables and eager tensors that Python can reach, and the bytes of each."""
    tensor = type(tf.constant(0))
    return [
        (each, each.shape.num_elements() * each.dtype.size)
        for each in gc.get_objects()
        if (issubclass(type(each), tf.Variable) or (type(each) is tensor and each.dtype not in _HANDLES))
        and each.shape.is_fully_defined()
    ]


def count_programs() -> dict[tuple[int, str], int]:
    """By `id` and name of each `tf.function`: how often it was traced; every trace is kept."""
    kind = tf.types.experimental.PolymorphicFunction
    return {
        (id(each), getattr(each.python_function, "__qualname__", "?")): each.experimental_get_tracing_count()
        for each in gc.get_objects()
        if issubclass(type(each), kind)
    }


def begin_round() -> Callable[[], tuple[str, ...]]:
    """Note what is there; the function that comes back ends the round."""
    global _outside
    if _outside is None:
        _outside = frozenset(ops.gradient_registry.list())
    before = weakref.WeakSet(_jitted_models())

    def end_round() -> tuple[str, ...]:
        is_compiled = any(model not in before for model in _jitted_models())
        _drop_gradients_of_dead_graphs()
        if tf.executing_eagerly():
            context.context().clear_kernel_cache()
        notes = [_KEPT_PROGRAMS] if is_compiled else []
        if tf.config.get_visible_devices("GPU"):
            notes.append(
                "TensorFlow keeps its memory pool until the process ends; what is free in it serves the next round."
            )
        return tuple(notes)

    return end_round


def _jitted_models() -> Iterator[Any]:
    """The compiled Keras models whose steps XLA compiles."""
    import keras

    return (
        each for each in gc.get_objects() if issubclass(type(each), keras.Model) and each.compiled and each.jit_compile
    )


def _drop_gradients_of_dead_graphs() -> None:
    """Take the gradients of rounds out of the registry, and put those back whose graph somebody still holds.

    Meanwhile a gradient lies with its graph, which makes the two a cycle: garbage where nobody else holds the graph.
    """
    registry: dict[str, Any] = ops.gradient_registry._registry
    graphs = []
    for name in [each for each in registry if each.startswith(_CUSTOM) and each not in (_outside or ())]:
        graph = _find_graph(registry[name])
        if graph is not None:
            parked = getattr(graph, _PARKED, {})
            parked[name] = registry.pop(name)
            setattr(graph, _PARKED, parked)
            graphs.append(weakref.ref(graph))
            del parked
        del graph
    gc.collect()
    gc.collect()  # what graphs let go of in the first is cycles, too
    for reference in graphs:
        if (graph := reference()) is not None:
            registry.update(getattr(graph, _PARKED))
            setattr(graph, _PARKED, {})


def _find_graph(entry: dict[str, Any]) -> Any | None:
    """The outermost graph that a registered gradient was traced in, or None where that does not show."""
    for value in _closure_values(entry["type"], depth=2):
        graph = next((each.graph for each in tf.nest.flatten(value) if tf.is_symbolic_tensor(each)), None)
        if graph is None:
            continue
        while (outer := getattr(graph, "outer_graph", None)) is not None and outer.building_function:
            graph = outer
        return graph
    return None


def _closure_values(function: Any, depth: int) -> Iterator[Any]:
    """What a function's closure holds, and the closures of functions in it."""
    for cell in getattr(function, "__closure__", None) or ():
        try:
            value = cell.cell_contents
        except ValueError:  # a cell that was never filled
            continue
        if depth > 1 and callable(value):
            yield from _closure_values(value, depth - 1)
        elif isinstance(value, list | tuple | dict) or tf.is_symbolic_tensor(value):
            yield value
