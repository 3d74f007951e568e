"""Shapes that importing a graph leaves open, because they depend on whole numbers computed in it.

The gradient of a convolution, for one, is given the size of its images as a tensor. TensorFlow infers the shape of its
result where that tensor is a constant; Grappler's rewriting to another layout puts an operation between. Here such
numbers are computed, and TensorFlow's own shape functions asked again, one operation after another. What a fused
normalisation keeps for cuDNN (its last output) is a single number in the modes that TensorFlow runs it in by default.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from fitroom.backends.tensorflow.trace.graph.output import Output, shape_of

_WHOLE = (tf.int32, tf.int64)
_MOST_NUMBERS = 64

_NAMES = """DataFormatVecPermute Pack ConcatV2 StridedSlice Slice GatherV2 Reshape Squeeze ExpandDims Identity Cast
    AddV2 Add Sub Mul FloorDiv FloorMod Maximum Minimum Prod Max Sum Range Fill InvertPermutation
    BroadcastArgs BroadcastGradientArgs ConcatOffset"""
_COMPUTED = frozenset(_NAMES.split())
"""Operations on whole numbers whose result depends on nothing but their inputs."""

_OF_SHAPES = ("Shape", "ShapeN", "Size", "Rank")
_NOT_ALONE = frozenset(("Merge", "Switch", "Enter", "Exit", "NextIteration", "LoopCond"))
"""What these make depends on more than their inputs' shapes."""

Outputs = tuple[Output, ...]


def complete_shapes(graph: tf.Graph, outputs_of: Mapping[str, Outputs]) -> dict[str, Outputs]:
    """The outputs of each operation of an imported graph, with the shapes that can be told."""
    return _Inference(outputs_of).of_all(graph)


class _Inference:
    def __init__(self, outputs_of: Mapping[str, Outputs]) -> None:
        self._outputs_of = dict(outputs_of)
        self._values: dict[str, list[Any] | None] = {}

    def of_all(self, graph: tf.Graph) -> dict[str, Outputs]:
        for operation in graph.get_operations():
            if operation.type not in _NOT_ALONE and any(each.is_open for each in self._outputs_of[operation.name]):
                self._outputs_of[operation.name] = self._infer(operation)
        return self._outputs_of

    def _infer(self, operation: Any) -> Outputs:
        """The outputs of the operation alone, its inputs with their shapes and, where they are known, values."""
        known = self._outputs_of[operation.name]
        if operation.type == "FusedBatchNormV3":
            return tuple(Output((), output.dtype) if output.is_open else output for output in known)
        if any(tensor.dtype == tf.variant for tensor in operation.inputs):
            return known
        _, copy = self._alone(operation)
        return tuple(
            Output(shape_of(tensor), tensor.dtype) if output.is_open else output
            for output, tensor in zip(known, copy.outputs, strict=True)
        )

    def _value(self, tensor: Any) -> Any:
        """The numbers in a tensor of the graph, or None."""
        output = self._outputs_of[tensor.op.name][tensor.value_index]
        if tensor.dtype not in _WHOLE or (output.num_elements or 0) > _MOST_NUMBERS:
            return None
        name = tensor.op.name
        if name not in self._values:
            self._values[name] = self._compute(tensor.op)
        values = self._values[name]
        return None if values is None else values[tensor.value_index]

    def _compute(self, operation: Any) -> list[Any] | None:
        if operation.type == "Const":
            return [tf.make_ndarray(operation.get_attr("value"))]
        if operation.type in _OF_SHAPES:
            return self._numbers_of_shapes(operation)
        if operation.type not in _COMPUTED or any(self._value(tensor) is None for tensor in operation.inputs):
            return None
        graph, copy = self._alone(operation)
        with tf.compat.v1.Session(graph=graph) as session:
            return list(session.run(copy.outputs))

    def _numbers_of_shapes(self, operation: Any) -> list[Any] | None:
        given = [self._outputs_of[tensor.op.name][tensor.value_index] for tensor in operation.inputs]
        dtype = operation.outputs[0].dtype.as_numpy_dtype
        if any(output.num_elements is None for output in given):
            return None
        if operation.type == "Size":
            return [np.array(given[0].num_elements, dtype)]
        if operation.type == "Rank":
            return [np.array(len(given[0].shape or ()), dtype)]
        return [np.array(output.shape, dtype) for output in given]

    def _alone(self, operation: Any) -> tuple[tf.Graph, Any]:
        """A graph of the operation and its inputs, and the operation there."""
        with tf.Graph().as_default() as inputs:
            names = [self._stand_in(tensor).op.name for tensor in operation.inputs]
        graph_def = inputs.as_graph_def()
        node = graph_def.node.add()
        node.CopyFrom(operation.node_def)
        node.name = "alone"
        node.device = ""
        node.attr.pop("_class", None)
        del node.input[:]
        node.input.extend(names)
        with tf.Graph().as_default() as graph:
            tf.graph_util.import_graph_def(graph_def, name="")
        return graph, graph.get_operation_by_name(node.name)

    def _stand_in(self, tensor: Any) -> Any:
        value = self._value(tensor)
        if value is not None:
            return tf.constant(value, tensor.dtype)
        output = self._outputs_of[tensor.op.name][tensor.value_index]
        return tf.compat.v1.placeholder(tensor.dtype, output.shape)
