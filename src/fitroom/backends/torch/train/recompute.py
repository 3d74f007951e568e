"""Segments that PyTorch computes again in the backward pass."""

import gc
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import keras
import torch
from keras.src.backend.common import global_state  # no public name leads to what Keras knows of the call under way
from torch.autograd.graph import saved_tensors_hooks

from fitroom.backends.torch.train.random_state import drawing_from, random_state
from fitroom.backends.torch.train.snapshot import Snapshot
from fitroom.keras_model.segmented_call import RecomputeFunction, Run, SegmentVariables
from fitroom.keras_model.state import IsolatedScope

_OF_A_CALL = ("current_call_ctx", "autocast_scope", "torch_device", "flash_attention", "global_seed_generator")
"""What Keras keeps for each thread and a layer may ask for while it is called."""


def recomputing(model: Any) -> RecomputeFunction:
    """`recomputed` for the segments of a model."""
    wrapped = [layer for layer in model._flatten_layers() if isinstance(layer, keras.layers.TorchModuleWrapper)]
    return partial(recomputed, modules=[layer.module for layer in wrapped])


def recomputed(run: Run, inputs: Sequence[Any], variables: SegmentVariables, modules: Sequence[Any] = ()) -> list[Any]:
    """Run one segment so that for the backward pass only `inputs` and the outputs are kept.

    What the segment changes is held back while it runs, and takes effect after the first run alone. `modules` are
    those of PyTorch that the model holds, which nobody can hold back: what they change in a second run is undone.
    """
    if not torch.is_grad_enabled():
        return run(inputs)
    call: dict[str, Any] = {}
    before: list[tuple[Any, Any]] = []

    def segment(tensors: Sequence[Any]) -> list[Any]:
        if call:
            buffers = Snapshot([buffer for module in modules for buffer in module.buffers()])
            with _within(call), IsolatedScope(before):
                outputs = run(tensors)
            buffers.put_back()
            return outputs
        with IsolatedScope() as scope:
            outputs = run(tensors)
        before.extend(_carried_out(scope.changes))
        call.update(_what_keras_knows())
        return outputs

    return ComputedAgain(segment, inputs).outputs()


def _carried_out(changes: Sequence[tuple[Any, Any]]) -> Iterator[tuple[Any, Any]]:
    """Give the variables their new values; those of before are returned."""
    old = Snapshot([variable._value for variable, _ in changes])
    if changes:
        torch._foreach_copy_(old.tensors, [value.detach() for _, value in changes])
    return zip((variable for variable, _ in changes), old.copies, strict=True)


def _what_keras_knows() -> dict[str, Any]:
    return {name: global_state.get_global_attribute(name) for name in _OF_A_CALL}


@contextmanager
def _within(call: dict[str, Any]) -> Iterator[None]:
    """Let Keras know of a call in this thread too: on a card the backward pass has one of its own."""
    own = _what_keras_knows()
    for name, value in call.items():
        global_state.set_global_attribute(name, value)
    try:
        yield
    finally:
        for name, value in own.items():
            global_state.set_global_attribute(name, value)


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
