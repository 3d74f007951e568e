"""A graph of layers as a chain of calls with boundaries between them, and what it costs to cut it there.

Boundary `b` is before call `b`. All sizes are of one sample. Of a segment from boundary `a` to `b`:

- what crosses `b` is kept in any case: the tensors that are computed in it and used after it;
- what its backward pass needs besides is kept from the forward pass on, or recomputed just before;
- at its backward pass all of that is in memory, with the gradients of what is alive.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from fitroom.remat.call_costs import BackwardNeeds, count_operations, find_backward_needs
from fitroom.remat.graph import LayerGraph
from fitroom.remat.shapes import shapes_of

Array = Any
"""NumPy's, of whole numbers."""

OPERATIONS_A_BYTE = 16
"""How many operations a card does while it moves one byte. A normalisation has few operations and still takes time."""


@dataclass(frozen=True, kw_only=True)
class Chain:
    """The calls of a graph in their order, as arrays."""

    made: Array
    """For each tensor the call that makes it; -1 for inputs of the model."""

    last_used: Array
    """For each tensor the last call that uses it; the number of calls for outputs of the model."""

    tensor_bytes: Array
    """0 for the model's inputs: the batch is in memory in any case."""

    needed_bytes: Array
    """For each tensor its size if a backward pass needs it, else 0."""

    extra_bytes: Array
    """For each call what its backward pass needs besides tensors of the graph (`BackwardNeeds.extra_bytes`)."""

    made_bytes: Array
    """For each call the size of what it makes."""

    operations: Array
    """For each call."""

    efforts: Array
    """For each call its operations and those that a card could have done while it moves the call's bytes."""

    users: tuple[tuple[int, ...], ...]
    """For each call those that use what it makes."""

    needs: tuple[BackwardNeeds, ...]

    @property
    def num_calls(self) -> int:
        """How many calls there are; also the last boundary."""
        return len(self.needs)

    @cached_property
    def alive_bytes(self) -> Array:
        """At each boundary the tensors that are made before it and used after it."""
        change: Array = np.zeros(self.num_calls + 2, np.int64)
        np.add.at(change, self.made + 1, self.tensor_bytes)
        np.add.at(change, self.last_used + 1, -self.tensor_bytes)
        return np.cumsum(change)[: self.num_calls + 1]

    @cached_property
    def needed_before(self) -> Array:
        """At each boundary what backward passes need of all calls before it."""
        by_call = self.extra_bytes.copy()
        inside = self.made >= 0
        np.add.at(by_call, self.made[inside], self.needed_bytes[inside])
        return np.concatenate([[0], np.cumsum(by_call)])

    @cached_property
    def at_backward(self) -> Array:
        """For each call the bytes in use at its backward pass if all calls before it are kept, with gradients."""
        return self.needed_before[1:] + self.alive_bytes[:-1] + self.made_bytes

    @property
    def plain_peak_bytes(self) -> int:
        """The peak where nothing is recomputed."""
        return int(self.at_backward.max())

    def crossing(self, boundary: int) -> tuple[Array, Array]:
        """By `a`: the bytes made from call `a` on that cross this boundary, and those of them a backward pass needs."""
        crosses = (self.made >= 0) & (self.made < boundary) & (self.last_used >= boundary)
        by_call: Array = np.zeros((2, boundary + 1), np.int64)
        np.add.at(by_call[0], self.made[crosses], self.tensor_bytes[crosses])
        np.add.at(by_call[1], self.made[crosses], self.needed_bytes[crosses])
        summed = np.cumsum(by_call[:, ::-1], axis=1)[:, ::-1]
        return summed[0], summed[1]

    def recomputed_before(self, boundary: int) -> Array:
        """Which calls before this boundary are recomputed, if the segment they are in ends here.

        Calls at its end whose outputs are kept anyway, or needed by no backward pass, are not.
        """
        recomputed: Array = np.zeros(boundary, bool)
        for number in range(boundary - 1, -1, -1):
            need = self.needs[number]
            recomputed[number] = (
                need.outputs
                or need.extra_bytes > 0
                or any(user < boundary and (self.needs[user].inputs or recomputed[user]) for user in self.users[number])
            )
        return recomputed


def chain_of(graph: LayerGraph) -> Chain:
    """The chain of a graph, sizes from its shapes and the precision its layers compute in."""
    shapes = shapes_of(graph)
    num_calls = len(graph.calls)
    needs, operations, moved = [], [], []
    needed: set[int] = set()
    for call in graph.calls:
        inputs, outputs = [shapes[place] for place in call.inputs], [shapes[place] for place in call.outputs]
        need = BackwardNeeds() if call.enters else find_backward_needs(call.operation, inputs, outputs)
        needed.update(call.inputs if need.inputs else (), call.outputs if need.outputs else ())
        needs.append(need)
        operations.append(0 if call.enters else count_operations(call.operation, inputs, outputs))
        moved.append(sum(shape.size_bytes for shape in (*inputs, *outputs)) if operations[-1] else 0)
    made = _array(graph.made_by.get(place, -1) for place in range(len(shapes)))
    tensor_bytes = np.where(made < 0, 0, _array(shape.size_bytes for shape in shapes))
    return Chain(
        made=made,
        last_used=_array(max(graph.used_by.get(place, (-1,))) for place in range(len(shapes))),
        tensor_bytes=tensor_bytes,
        needed_bytes=np.where(_array(place in needed for place in range(len(shapes))) == 1, tensor_bytes, 0),
        extra_bytes=_array(need.extra_bytes for need in needs),
        made_bytes=_array(sum(shapes[place].size_bytes for place in call.outputs) for call in graph.calls),
        operations=_array(operations),
        efforts=_array(operations) + OPERATIONS_A_BYTE * _array(moved),
        users=tuple(
            tuple(user for place in call.outputs for user in graph.used_by.get(place, ()) if user < num_calls)
            for call in graph.calls
        ),
        needs=tuple(needs),
    )


def _array(numbers: Any) -> Array:
    return np.array([int(number) for number in numbers], np.int64)
