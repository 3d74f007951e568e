"""Segments that PyTorch computes again in the backward pass."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import keras
import torch
from keras.src.backend.common import global_state  # no public name leads to what Keras knows of the call under way

from fitroom.backends.keras_held_back import HeldBack
from fitroom.backends.keras_segment import Recomputed, Run, SegmentVariables
from fitroom.backends.torch.computed_again import ComputedAgain
from fitroom.backends.torch.snapshot import Snapshot

_OF_A_CALL = ("current_call_ctx", "autocast_scope", "torch_device", "flash_attention", "global_seed_generator")
"""What Keras keeps for each thread and a layer may ask for while it is called."""


def recomputing(model: Any) -> Recomputed:
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
            with _within(call), HeldBack(before):
                outputs = run(tensors)
            buffers.put_back()
            return outputs
        with HeldBack() as scope:
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
