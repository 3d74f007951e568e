"""What the layers of a model share during one forward pass: copies of their weights, statistics still to be taken over.

One operation on all of them costs the host little more than one on each.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from fitroom.backends.torch.kernels.weights import Weight, copy_weights


class HasWeights(Protocol):
    """A fused call that reads weights."""

    def weights(self, dtype: Any) -> list[Weight]:
        """The weights, as they are to be copied."""


class ForwardPass:
    """One forward pass through a segment of a model."""

    def __init__(self, weighted: Sequence[tuple[HasWeights, Any]]) -> None:
        """`weighted` are the calls of the segment that read weights, each with the precision it computes in."""
        self._weighted = weighted
        self._copies: dict[int, list[Any]] | None = None
        self._waiting: dict[Any, dict[int, tuple[Any, ...]]] = {}

    def weights_of(self, call: HasWeights) -> list[Any]:
        """The copies of a call's weights. The first call makes those of all."""
        if self._copies is None:
            weights = [each.weights(dtype) for each, dtype in self._weighted]
            copies = iter(copy_weights([weight for of_one in weights for weight in of_one]))
            self._copies = {
                id(each): [next(copies) for _ in of_one]
                for (each, _), of_one in zip(self._weighted, weights, strict=True)
            }
        return self._copies[id(call)]

    def postpone(self, change: Callable[[Sequence[tuple[Any, ...]]], None], layer: Any, *values: Any) -> None:
        """Have `change` called with `(layer, *values)` of several layers at once, before Keras looks at them."""
        waiting = self._waiting.setdefault(change, {})
        if id(layer) in waiting:  # a layer's changes come one after the other
            self.settle()
            waiting = self._waiting.setdefault(change, {})
        waiting[id(layer)] = (layer, *values)

    def settle(self) -> None:
        """Make the changes that were postponed."""
        while self._waiting:
            change, waiting = self._waiting.popitem()
            change(list(waiting.values()))
