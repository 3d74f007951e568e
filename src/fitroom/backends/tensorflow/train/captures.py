"""Releases the variables that a traced function captured once the function is gone.

TensorFlow keeps the graph of every function in which a `tf.custom_gradient` was traced, in a registry of gradients and
for as long as the process lives; and a graph keeps the variables it captured. The update of every Keras optimizer has
such a gradient, in the sum over replicas. So each model that was ever trained or estimated would stay on its device.
"""

import weakref
from types import SimpleNamespace
from typing import Any

import tensorflow as tf

_HOLDERS: weakref.WeakKeyDictionary[Any, list[SimpleNamespace]] = weakref.WeakKeyDictionary()


def release_with(owner: Any, graph: Any) -> None:
    """Have `graph` release its variables when `owner` is gone. Nobody else may run it."""
    weakref.finalize(owner, _release, graph).atexit = False


def hold_until_released(**values: Any) -> SimpleNamespace:
    """A holder for what a custom gradient refers to, which TensorFlow keeps too; it is emptied with its graph."""
    place = SimpleNamespace(**values)
    if not tf.executing_eagerly():
        graph = tf.compat.v1.get_default_graph()
        while (outer := getattr(graph, "outer_graph", None)) is not None and outer.building_function:
            graph = outer
        _HOLDERS.setdefault(graph, []).append(place)
    return place


def _release(graph: Any) -> None:
    graph.function_captures.clear()
    _ = graph.captures  # a list of them is kept beside, and made anew when it is asked for
    for place in _HOLDERS.pop(graph, ()):
        vars(place).clear()
