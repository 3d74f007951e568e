"""Segments that PyTorch recomputes in the backward pass."""

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

from fitroom.backends.torch.train.snapshot import Snapshot, random_state, use_random_state
from fitroom.keras_model.segmented_call import RecomputeFunction, Run, SegmentVariables
from fitroom.keras_model.state import IsolatedScope

_CALL_STATE = ("current_call_ctx", "autocast_scope", "torch_device", "flash_attention", "global_seed_generator")
"""What Keras keeps for each thread and a layer may ask for while it is called."""


def bind_recompute(model: Any) -> RecomputeFunction:
    """`recompute_segment` bound to the PyTorch modules that a model holds."""
    wrapped = [layer for layer in model._flatten_layers() if isinstance(layer, keras.layers.TorchModuleWrapper)]
    return partial(recompute_segment, modules=[layer.module for layer in wrapped])


def recompute_segment(
    run: Run, inputs: Sequence[Any], variables: SegmentVariables, modules: Sequence[Any] = ()
) -> list[Any]:
    """Run one segment so that for the backward pass only `inputs` and the outputs are kept.

    What the segment changes in variables of Keras is held back while it runs, and takes effect after the first run
    alone. `modules` are those of PyTorch that the model holds, whose changes cannot be held back: those of the second
    run are undone.
    """
    if not torch.is_grad_enabled():
        return run(inputs)
    call: dict[str, Any] = {}
    before: list[tuple[Any, Any]] = []

    def segment(tensors: Sequence[Any]) -> list[Any]:
        if call:
            buffers = Snapshot([buffer for module in modules for buffer in module.buffers()])
            with _in_call(call), IsolatedScope(before):
                outputs = run(tensors)
            buffers.restore()
            return outputs
        with IsolatedScope() as scope:
            outputs = run(tensors)
        before.extend(_apply_changes(scope.changes))
        call.update(_call_state())
        return outputs

    return Recomputation(segment, inputs).outputs()


def _apply_changes(changes: Sequence[tuple[Any, Any]]) -> Iterator[tuple[Any, Any]]:
    """Give the variables their new values, and return the old ones."""
    old = Snapshot([variable._value for variable, _ in changes])
    if changes:
        torch._foreach_copy_(old.tensors, [value.detach() for _, value in changes])
    return zip((variable for variable, _ in changes), old.copies, strict=True)


def _call_state() -> dict[str, Any]:
    return {name: global_state.get_global_attribute(name) for name in _CALL_STATE}


@contextmanager
def _in_call(call: dict[str, Any]) -> Iterator[None]:
    """Set what Keras keeps of a call in this thread too: on a card the backward pass runs in a thread of its own."""
    own = _call_state()
    for name, value in call.items():
        global_state.set_global_attribute(name, value)
    try:
        yield
    finally:
        for name, value in own.items():
            global_state.set_global_attribute(name, value)


class _Placeholder:
    """A placeholder that autograd saves in place of a tensor."""

    __slots__ = ("__weakref__", "tensor")

    def __init__(self) -> None:
        self.tensor: Any = None


class Recomputation:
    """Runs a function of tensors so that autograd saves placeholders, which a second run fills in the backward pass."""

    def __init__(self, run: Callable[[Sequence[Any]], list[Any]], inputs: Sequence[Any]) -> None:
        self._run, self._inputs = run, inputs
        self._placeholders: list[weakref.ref[_Placeholder]] = []
        self._random = random_state()

    def outputs(self) -> list[Any]:
        """The outputs of the first run."""
        with saved_tensors_hooks(self._save_placeholder, self._tensor_for):
            outputs = self._run(self._inputs)
        _free_cycles()
        return outputs

    def _save_placeholder(self, tensor: Any) -> _Placeholder:
        place = _Placeholder()
        self._placeholders.append(weakref.ref(place))
        return place

    def _tensor_for(self, place: _Placeholder) -> Any:
        if place.tensor is None:
            self._recompute()
        tensor, place.tensor = place.tensor, None
        return tensor

    def _recompute(self) -> None:
        waiting = iter(self._placeholders)

        def fill(tensor: Any) -> None:
            place = next(waiting)()
            if place is not None:  # else autograd is done with it
                place.tensor = tensor.detach()

        # Nothing ever goes back through this graph: it saves nothing.
        unused = saved_tensors_hooks(fill, lambda nothing: nothing)
        with use_random_state(self._random), torch.enable_grad(), unused:
            self._run(self._inputs)
        _free_cycles()


def _free_cycles() -> None:
    """Free the tensors that Keras leaves behind in cycles. Of young objects there are few: it takes no time."""
    gc.collect(1)
