"""What shows only while a step runs: the whole numbers that steer loops, and shapes that depend on them."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from fitroom.backends.tensorflow.trace.graph.memory_rules import inputs_to_reuse
from fitroom.backends.tensorflow.trace.graph.output import Output
from fitroom.backends.tensorflow.trace.graph.program import Operation
from fitroom.backends.tensorflow.trace.graph.values import Value

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


def compute_number(operation: Operation, numbers: Sequence[Any]) -> Any:
    """The value of an operation on values that are known, or None."""
    if not numbers or any(number is None for number in numbers):
        return None
    if operation.op == "Cast":
        return numbers[0]
    function = _FUNCTIONS.get(operation.op)
    return None if function is None else function(*numbers)


Shape = tuple[int | None, ...]


def complete_shape(operation: Operation, output: Output, inputs: Sequence[Value]) -> Output:
    """The output with its shape filled in where it can be told."""
    if output.num_elements is not None:
        return output
    shape = _shape(operation, inputs)
    return output if shape is None else Output(shape, output.dtype)


def _shape(operation: Operation, inputs: Sequence[Value]) -> Shape | None:
    if operation.op == "MatMul":
        return _product(operation, inputs)
    if operation.op == "ConcatV2":
        return _joined(inputs)
    if operation.op == "BiasAddGrad" and inputs[0].output.shape:
        return inputs[0].output.shape[-1:]
    if operation.op in ("Fill", "Zeros") and inputs[0].number is not None:
        return tuple(int(length) for length in inputs[0].number)
    if operation.op in ("ZerosLike", "OnesLike", "Cast") or inputs_to_reuse(operation, 0):
        known = [value.output for value in inputs if value.output.num_elements is not None]
        return max(known, key=lambda output: output.num_elements or 0).shape if known else None
    return None


def _product(operation: Operation, inputs: Sequence[Value]) -> Shape | None:
    left, right = (value.output.shape for value in inputs[:2])
    if left is None or right is None or len(left) != 2 or len(right) != 2:
        return None
    rows = left[1] if operation.attributes["transpose_a"].b else left[0]
    columns = right[0] if operation.attributes["transpose_b"].b else right[1]
    return rows, columns


def _joined(inputs: Sequence[Value]) -> Shape | None:
    shapes = [value.output.shape for value in inputs[:-1]]
    if inputs[-1].number is None or any(shape is None or None in shape for shape in shapes):
        return None
    axis = int(inputs[-1].number)
    first = list(shapes[0] or ())
    first[axis] = sum((shape or ())[axis] or 0 for shape in shapes)
    return tuple(first)
