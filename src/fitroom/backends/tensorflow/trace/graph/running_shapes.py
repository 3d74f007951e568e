"""Shapes that show only while a loop runs: what an operation makes of inputs whose shapes are known by then."""

from collections.abc import Sequence

from fitroom.backends.tensorflow.trace.graph.memory_rules import inputs_to_reuse
from fitroom.backends.tensorflow.trace.graph.program import Operation, Output
from fitroom.backends.tensorflow.trace.graph.values import Value

Shape = tuple[int | None, ...]


def completed(operation: Operation, output: Output, inputs: Sequence[Value]) -> Output:
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
