"""Segments that PyTorch computes again in the backward pass."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import keras
import torch
from keras.src.backend.common import global_state  # no public name leads to what Keras knows of the call under way
from torch.utils.checkpoint import checkpoint

from fitroom.backends.keras_segment import Run, SegmentVariables
from fitroom.backends.torch.snapshot import Snapshot

_KERAS_SEED = "global_seed_generator"
_OF_A_CALL = ("current_call_ctx", "autocast_scope", "torch_device", "flash_attention", _KERAS_SEED)
"""What Keras keeps for each thread and a layer may ask for while it is called."""


def recomputed(run: Run, inputs: Sequence[Any], variables: SegmentVariables) -> list[Any]:
    """Run one segment so that for the backward pass only `inputs` and the outputs are kept.

    What the segment changes is held back while it runs, and takes effect after the first run alone.
    """
    if not torch.is_grad_enabled():
        return run(inputs)
    call = {name: global_state.get_global_attribute(name) for name in _OF_A_CALL}
    seed = [call[_KERAS_SEED].state] if call[_KERAS_SEED] else []
    changes: _Changes | None = None

    def segment(*tensors: Any) -> list[Any]:
        nonlocal changes
        if changes is not None:
            with _within(call), keras.StatelessScope(changes.undone, initialize_variables=False):
                return run(tensors)
        with keras.StatelessScope(initialize_variables=False) as scope:
            outputs = run(tensors)
        changes = _Changes((*variables.non_trainable, *variables.seeds, *seed), scope)
        return outputs

    # To stop early it would raise an error through Keras, which dresses up each with what the layers were given.
    return list(checkpoint(segment, *inputs, use_reentrant=False, early_stop=False))


class _Changes:
    """What the first run changed: carried out, with the values of before kept for the second."""

    def __init__(self, variables: Sequence[Any], scope: Any) -> None:
        new = [(variable, scope.get_current_value(variable)) for variable in variables]
        changed = [(variable, value.detach()) for variable, value in new if value is not None]
        before = Snapshot([variable._value for variable, _ in changed])
        if changed:
            torch._foreach_copy_(before.tensors, [value for _, value in changed])
        self.undone = [(variable, copy) for (variable, _), copy in zip(changed, before.copies, strict=True)]


@contextmanager
def _within(call: dict[str, Any]) -> Iterator[None]:
    """Let Keras know of a call in this thread too: on a card the backward pass has one of its own."""
    own = {name: global_state.get_global_attribute(name) for name in call}
    for name, value in call.items():
        global_state.set_global_attribute(name, value)
    try:
        yield
    finally:
        for name, value in own.items():
            global_state.set_global_attribute(name, value)
