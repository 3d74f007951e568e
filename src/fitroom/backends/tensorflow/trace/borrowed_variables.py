"""Variables that have a shape and a handle but no value, borrowed by Keras variables for the time of tracing.

Keras on TensorFlow needs a `tf.Variable` behind each of its own to trace a step that assigns them. One without a
value costs neither the time of an initializer nor memory.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from tensorflow.python.ops.resource_variable_ops import UninitializedVariable  # the one kind without a value


@contextmanager
def borrow_values(variables: Iterable[Any]) -> Iterator[None]:
    """Give each Keras variable that has no value a `tf.Variable` without content, for the time of the block."""
    borrowing = [variable for variable in variables if variable._value is None]
    for variable in borrowing:
        variable._value = UninitializedVariable(
            shape=tuple(variable.shape), dtype=variable.dtype, trainable=variable.trainable, name=variable.name
        )
    try:
        yield
    finally:
        for variable in borrowing:
            variable._value = None
