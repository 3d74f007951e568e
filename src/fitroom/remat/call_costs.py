"""What one call of a layer costs for one sample, from shapes alone: operations, and what its backward pass needs.

The rules are by the kind of layer, as the frameworks' gradients are: a convolution needs its input in the backward
pass, an addition nothing, a rectifier its output. An unknown layer is taken to need both.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from fitroom.remat.shapes import Shape

_PER_ELEMENT = {"normalization": 8, "activation": 4}
_OTHER_PER_ELEMENT = 1


def count_operations(operation: Any, inputs: Sequence[Shape], outputs: Sequence[Shape]) -> int:
    """Count the multiplications and additions of one call.

    A matrix product takes two for each weight at each position, anything else a few for each element.
    """
    kind = type(operation).__name__.lower()
    if matrices := [] if "embedding" in kind else matrix_shapes(operation):
        positions = count_positions(operation, inputs, outputs)
        return 2 * positions * sum(prod(matrix) for matrix in matrices) + _count_attention(operation, inputs)
    per_element = next((number for part, number in _PER_ELEMENT.items() if part in kind), _OTHER_PER_ELEMENT)
    return per_element * sum(shape.num_elements for shape in (*inputs, *outputs))


def matrix_shapes(operation: Any) -> list[tuple[int, ...]]:
    """The shapes of the weights that are multiplied with: kernels, not biases or scales."""
    weights = getattr(operation, "weights", ())
    return [tuple(weight.shape) for weight in weights if len(weight.shape) > 1]


def count_positions(operation: Any, inputs: Sequence[Shape], outputs: Sequence[Shape]) -> int:
    """How often the weights are applied in one sample: at each pixel, each step of a sequence."""
    is_convolution = hasattr(operation, "kernel_size")
    at_output = is_convolution and "Transpose" not in type(operation).__name__
    dimensions = (outputs if at_output else inputs)[0].dimensions
    if is_convolution and getattr(operation, "data_format", "") == "channels_first":
        return prod(dimensions[1:])
    return prod(dimensions[:-1])


def _count_attention(operation: Any, inputs: Sequence[Shape]) -> int:
    """Operations of queries with keys and of attention weights with values, which no weight of the layer shows."""
    if not hasattr(operation, "num_heads") and not hasattr(operation, "_num_heads"):
        return 0
    lengths = [prod(shape.dimensions[:-1]) for shape in (inputs[0], inputs[-1])]
    return 4 * lengths[0] * lengths[1] * inputs[0].dimensions[-1]


_NEED_NOTHING = frozenset(
    (
        *("Add", "Subtract", "Average", "Concatenate", "Flatten", "Reshape", "Permute", "RepeatVector", "Identity"),
        *("Rescaling", "Embedding", "CategoryEncoding", "Masking", "Transpose", "ExpandDims", "Squeeze", "Cast"),
        *("GetItem", "Mean", "Sum", "Stack", "Split", "Negative", "Pad", "BroadcastTo"),
        *(f"{name}{rank}D" for name in ("ZeroPadding", "Cropping", "UpSampling") for rank in (1, 2, 3)),
        *(f"{name}{rank}D" for name in ("AveragePooling", "GlobalAveragePooling") for rank in (1, 2, 3)),
    )
)
_DROPOUTS = frozenset(("Dropout", *(f"SpatialDropout{rank}D" for rank in (1, 2, 3))))
_ACTIVATIONS = frozenset(("Activation", "ReLU", "Softmax", "LeakyReLU", "ELU", "Relu", "Relu6", "Sigmoid", "Tanh"))
_GRADIENT_FROM_OUTPUT = frozenset(
    ("linear", "relu", "relu6", "leakyrelu", "elu", "sigmoid", "hard_sigmoid", "tanh", "softmax")
)
"""Activations whose gradient is computed from their output; that of others from their input."""


@dataclass(frozen=True, kw_only=True)
class BackwardNeeds:
    """What the backward pass of one call needs of its forward pass."""

    inputs: bool = False
    outputs: bool = False
    extra_bytes: int = 0
    """For one sample, of tensors inside the call: a mask, the value before an activation."""


def find_backward_needs(operation: Any, inputs: Sequence[Shape], outputs: Sequence[Shape]) -> BackwardNeeds:
    """Find what the backward pass of one call needs, by the kind of its layer."""
    kind = type(operation).__name__
    if kind in _NEED_NOTHING:
        return BackwardNeeds()
    if kind in _DROPOUTS:
        return BackwardNeeds(extra_bytes=sum(shape.num_elements for shape in outputs))
    activation = _activation(operation)
    if kind in _ACTIVATIONS:
        by_output = (activation or kind.lower()) in _GRADIENT_FROM_OUTPUT
        return BackwardNeeds(inputs=not by_output, outputs=by_output)
    if kind == "Multiply" or "Normalization" in kind:
        return BackwardNeeds(inputs=True)
    inner_bytes = _inner_bytes(operation, inputs, outputs)
    if not matrix_shapes(operation):
        return BackwardNeeds(inputs=True, outputs=True, extra_bytes=inner_bytes)
    if activation not in (None, *_GRADIENT_FROM_OUTPUT):
        inner_bytes += sum(shape.size_bytes for shape in outputs)
    return BackwardNeeds(
        inputs=True, outputs=activation in _GRADIENT_FROM_OUTPUT and activation != "linear", extra_bytes=inner_bytes
    )


def _activation(operation: Any) -> str | None:
    """The name of the layer's activation, in lower case."""
    function = getattr(operation, "activation", None)
    return None if function is None else str(getattr(function, "__name__", type(function).__name__)).lower()


def _inner_bytes(operation: Any, inputs: Sequence[Shape], outputs: Sequence[Shape]) -> int:
    """Tensors between the parts of a layer of several matrices: the product with each of them."""
    matrices, item_bytes = matrix_shapes(operation), outputs[0].item_bytes
    if hasattr(operation, "depthwise_kernel") and hasattr(operation, "pointwise_kernel"):
        channels = int(prod(operation.depthwise_kernel.shape[-2:]))
        return count_positions(operation, inputs, outputs) * channels * item_bytes
    if len(matrices) < 2:
        return 0
    positions = count_positions(operation, inputs, outputs)
    return positions * sum(matrix[-1] for matrix in matrices) * item_bytes
