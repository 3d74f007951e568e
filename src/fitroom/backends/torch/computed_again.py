"""Tensors that autograd would save, computed again when it asks for them.

PyTorch's own `torch.utils.checkpoint` does the same, but there the graph of the second run holds all of its tensors as
long as one lives that leads to it. Keras leaves some behind in cycles, until Python collects them.
"""

import gc
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.autograd.graph import saved_tensors_hooks

from fitroom.backends.torch.random_state import drawing_from, random_state


class _Place:
    """What autograd has in place of a tensor."""

    __slots__ = ("__weakref__", "tensor")

    def __init__(self) -> None:
        self.tensor: Any = None


class ComputedAgain:
    """Runs a function of tensors so that autograd saves places, which a second run fills when the first is wanted."""

    def __init__(self, run: Callable[[Sequence[Any]], list[Any]], inputs: Sequence[Any]) -> None:
        self._run, self._inputs = run, inputs
        self._places: list[weakref.ref[_Place]] = []
        self._random = random_state()

    def outputs(self) -> list[Any]:
        """What the first run gives."""
        with saved_tensors_hooks(self._keep_place, self._tensor_for):
            outputs = self._run(self._inputs)
        _free_cycles()
        return outputs

    def _keep_place(self, tensor: Any) -> _Place:
        place = _Place()
        self._places.append(weakref.ref(place))
        return place

    def _tensor_for(self, place: _Place) -> Any:
        if place.tensor is None:
            self._run_again()
        tensor, place.tensor = place.tensor, None
        return tensor

    def _run_again(self) -> None:
        waiting = iter(self._places)

        def fill(tensor: Any) -> None:
            place = next(waiting)()
            if place is not None:  # else autograd is done with it
                place.tensor = tensor.detach()

        # Nothing ever goes back through this graph: it saves nothing.
        unused = saved_tensors_hooks(fill, lambda nothing: nothing)
        with drawing_from(self._random), torch.enable_grad(), unused:
            self._run(self._inputs)
        _free_cycles()


def _free_cycles() -> None:
    """Free the tensors that Keras leaves behind in cycles. Of young objects there are few: it takes no time."""
    gc.collect(1)
