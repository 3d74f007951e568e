"""Scratch memory of library kernels, which they take while they run."""

from collections.abc import Sequence

from fitroom.backends.tensorflow.graph.kernels import Scratch
from fitroom.backends.tensorflow.graph.program import Operation, Output
from fitroom.estimating.cards import Card

_MIB = 2**20
_CONVOLUTIONS = ("Conv2D", "Conv2DBackpropInput", "Conv2DBackpropFilter")


def scratch_of(card: Card) -> Scratch:
    """The rules that hold on a card."""
    capability = card.compute_capability or (8, 0)
    blas_bytes = 32 * _MIB if capability[0] >= 9 else 4 * _MIB

    def scratch(operation: Operation, inputs: Sequence[Output]) -> list[int]:
        if operation.op in _CONVOLUTIONS:
            pictures = [each.size_bytes for each in inputs if len(each.shape or ()) == 4]
            return [sum(pictures) + operation.outputs[0].size_bytes]
        if operation.op == "MatMul":
            return [blas_bytes]
        return []

    return scratch
