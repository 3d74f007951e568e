"""How many multiplications and additions a call takes for one sample, from shapes alone."""

from collections.abc import Sequence
from math import prod
from typing import Any

from fitroom.remat.shapes import Shape

_PER_ELEMENT = {"normalization": 8, "activation": 4}
_OTHERWISE_PER_ELEMENT = 1


def num_operations(operation: Any, inputs: Sequence[Shape], outputs: Sequence[Shape]) -> int:
    """Of a matrix product two for each weight at each position; of anything else a few for each element."""
    kind = type(operation).__name__.lower()
    if matrices := [] if "embedding" in kind else matrix_shapes(operation):
        positions = num_positions(operation, inputs, outputs)
        return 2 * positions * sum(prod(matrix) for matrix in matrices) + _attention(operation, inputs)
    per_element = next((number for part, number in _PER_ELEMENT.items() if part in kind), _OTHERWISE_PER_ELEMENT)
    return per_element * sum(shape.num_elements for shape in (*inputs, *outputs))


def matrix_shapes(operation: Any) -> list[tuple[int, ...]]:
    """The shapes of the weights that are multiplied with: kernels, not biases or scales."""
    weights = getattr(operation, "weights", ())
    return [tuple(weight.shape) for weight in weights if len(weight.shape) > 1]


def num_positions(operation: Any, inputs: Sequence[Shape], outputs: Sequence[Shape]) -> int:
    """How often the weights are applied in one sample: at each pixel, each step of a sequence."""
    is_convolution = hasattr(operation, "kernel_size")
    at_output = is_convolution and "Transpose" not in type(operation).__name__
    dimensions = (outputs if at_output else inputs)[0].dimensions
    if is_convolution and getattr(operation, "data_format", "") == "channels_first":
        return prod(dimensions[1:])
    return prod(dimensions[:-1])


def _attention(operation: Any, inputs: Sequence[Shape]) -> int:
    """The products of queries with keys and of weights with values, which no weight of the layer shows."""
    if not hasattr(operation, "num_heads") and not hasattr(operation, "_num_heads"):
        return 0
    lengths = [prod(shape.dimensions[:-1]) for shape in (inputs[0], inputs[-1])]
    return 4 * lengths[0] * lengths[1] * inputs[0].dimensions[-1]
