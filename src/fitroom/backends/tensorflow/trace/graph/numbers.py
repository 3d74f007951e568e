"""The whole numbers that steer loops, followed by value through the replay."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from fitroom.backends.tensorflow.trace.graph.program import Operation

_MOST_ELEMENTS = 64
_KINDS = (tf.int32, tf.int64, tf.bool)

_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "Add": np.add,
    "AddV2": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "FloorDiv": np.floor_divide,
    "FloorMod": np.mod,
    "Minimum": np.minimum,
    "Maximum": np.maximum,
    "Less": np.less,
    "LessEqual": np.less_equal,
    "Greater": np.greater,
    "GreaterEqual": np.greater_equal,
    "Equal": np.equal,
    "NotEqual": np.not_equal,
    "LogicalAnd": np.logical_and,
    "LogicalOr": np.logical_or,
    "LogicalNot": np.logical_not,
    "Neg": np.negative,
}


def constant_number(operation: Operation) -> Any:
    """The value of a constant that may steer something, or None."""
    (output,) = operation.outputs
    if output.dtype not in _KINDS or (output.num_elements or 0) > _MOST_ELEMENTS:
        return None
    return tf.make_ndarray(operation.attributes["value"].tensor)


def computed_number(operation: Operation, numbers: Sequence[Any]) -> Any:
    """The value of an operation on values that are known, or None."""
    if not numbers or any(number is None for number in numbers):
        return None
    if operation.op == "Cast":
        return numbers[0]
    function = _FUNCTIONS.get(operation.op)
    return None if function is None else function(*numbers)
