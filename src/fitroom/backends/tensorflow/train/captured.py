"""Lets go of the variables of a traced function once nobody has it any more.

TensorFlow keeps the graph of every function in which a `tf.custom_gradient` was traced, in a registry of gradients and
for as long as the process lives; and a graph keeps the variables it captured. The update of every Keras optimizer has
such a gradient, in the sum over replicas. So each model that was ever trained or estimated would stay on its device.
"""

import weakref
from types import SimpleNamespace
from typing import Any

import tensorflow as tf

_PLACES: weakref.WeakKeyDictionary[Any, list[SimpleNamespace]] = weakref.WeakKeyDictionary()


def let_go_with(owner: Any, graph: Any) -> None:
    """When `owner` is gone, `graph` holds no variables. Nobody else may run it."""
    weakref.finalize(owner, _let_go, graph).atexit = False


def until_let_go(**values: Any) -> SimpleNamespace:
    """A place for what a gradient of our own refers to, which is kept as well: it is emptied with its graph."""
    place = SimpleNamespace(**values)
    if not tf.executing_eagerly():
        graph = tf.compat.v1.get_default_graph()
        while (outer := getattr(graph, "outer_graph", None)) is not None and outer.building_function:
            graph = outer
        _PLACES.setdefault(graph, []).append(place)
    return place


def _let_go(graph: Any) -> None:
    graph.function_captures.clear()
    _ = graph.captures  # a list of them is kept beside, and made anew when it is asked for
    for place in _PLACES.pop(graph, ()):
        vars(place).clear()
