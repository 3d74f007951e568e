"""What the backward pass of a call needs to be kept: its inputs, its outputs, or something that nobody else sees.

The rules are by the kind of layer, as the frameworks' gradients are: a convolution needs its input again, an addition
nothing, a rectifier what it gave out. Of a layer that is not known here both are taken to be needed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from fitroom.remat.operations import matrix_shapes, num_positions
from fitroom.remat.shapes import Shape

_NOTHING = frozenset(
    (
        *("Add", "Subtract", "Average", "Concatenate", "Flatten", "Reshape", "Permute", "RepeatVector", "Identity"),
        *("Rescaling", "Embedding", "CategoryEncoding", "Masking", "Transpose", "ExpandDims", "Squeeze", "Cast"),
        *("GetItem", "Mean", "Sum", "Stack", "Split", "Negative", "Pad", "BroadcastTo"),
        *(f"{name}{rank}D" for name in ("ZeroPadding", "Cropping", "UpSampling") for rank in (1, 2, 3)),
        *(f"{name}{rank}D" for name in ("AveragePooling", "GlobalAveragePooling") for rank in (1, 2, 3)),
    )
)
_DROPPING = frozenset(("Dropout", *(f"SpatialDropout{rank}D" for rank in (1, 2, 3))))
_ACTIVATIONS = frozenset(("Activation", "ReLU", "Softmax", "LeakyReLU", "ELU", "Relu", "Relu6", "Sigmoid", "Tanh"))
_BY_OUTPUT = frozenset(("linear", "relu", "relu6", "leakyrelu", "elu", "sigmoid", "hard_sigmoid", "tanh", "softmax"))
"""Activations whose gradient comes from what they gave out; that of others from what they were given."""


@dataclass(frozen=True, kw_only=True)
class Needs:
    """What is kept of one call for its backward pass."""

    inputs: bool = False
    outputs: bool = False
    extra_bytes: int = 0
    """For one sample, of what only this call sees: a mask, the value before an activation."""


def backward_needs(operation: Any, inputs: Sequence[Shape], outputs: Sequence[Shape]) -> Needs:
    """The rule for one call."""
    kind = type(operation).__name__
    if kind in _NOTHING:
        return Needs()
    if kind in _DROPPING:
        return Needs(extra_bytes=sum(shape.num_elements for shape in outputs))
    activation = _activation(operation)
    if kind in _ACTIVATIONS:
        by_output = (activation or kind.lower()) in _BY_OUTPUT
        return Needs(inputs=not by_output, outputs=by_output)
    if kind == "Multiply" or "Normalization" in kind:
        return Needs(inputs=True)
    inner_bytes = _inner_bytes(operation, inputs, outputs)
    if not matrix_shapes(operation):
        return Needs(inputs=True, outputs=True, extra_bytes=inner_bytes)
    if activation not in (None, *_BY_OUTPUT):
        inner_bytes += sum(shape.size_bytes for shape in outputs)
    return Needs(inputs=True, outputs=activation in _BY_OUTPUT and activation != "linear", extra_bytes=inner_bytes)


def _activation(operation: Any) -> str | None:
    """The name of the layer's activation, in lower case."""
    function = getattr(operation, "activation", None)
    return None if function is None else str(getattr(function, "__name__", type(function).__name__)).lower()


def _inner_bytes(operation: Any, inputs: Sequence[Shape], outputs: Sequence[Shape]) -> int:
    """What is kept between the parts of a layer that is several in one: the product with each of its matrices."""
    matrices, item_bytes = matrix_shapes(operation), outputs[0].item_bytes
    if hasattr(operation, "depthwise_kernel") and hasattr(operation, "pointwise_kernel"):
        channels = int(prod(operation.depthwise_kernel.shape[-2:]))
        return num_positions(operation, inputs, outputs) * channels * item_bytes
    if len(matrices) < 2:
        return 0
    positions = num_positions(operation, inputs, outputs)
    return positions * sum(matrix[-1] for matrix in matrices) * item_bytes
