"""Segments that JAX recomputes in the backward pass."""

from collections.abc import Sequence
from typing import Any

import jax
import keras

from fitroom.backends.jax.jit import can_be_compiled
from fitroom.keras_model.private import no_autocast_scope
from fitroom.keras_model.segmented_call import Run, SegmentVariables


def recompute_segment(run: Run, inputs: Sequence[Any], variables: SegmentVariables) -> list[Any]:
    """Run one segment so that for the backward pass only `inputs` and the outputs are kept.

    The segment becomes a function of its variables' values. The values that it changes are among its results, and take
    effect once, in the scope around it: those of the recomputation are dropped. A segment with a layer that cannot be
    traced keeps its activations.
    """
    if not all(map(can_be_compiled, variables.layers)):
        return run(inputs)  # JAX traces what it recomputes, and these layers cannot be traced
    given = (*variables.trainable, *variables.non_trainable, *variables.seeds)
    changed: list[Any] = []

    def segment(values: Sequence[Any], inputs: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        with keras.StatelessScope(state_mapping=list(zip(given, values, strict=True))) as scope:
            before = [scope.get_current_value(variable) for variable in given]
            outputs = run(inputs)
        after = [scope.get_current_value(variable) for variable in given]
        changed[:] = [variable for variable, old, new in zip(given, before, after, strict=True) if new is not old]
        return outputs, [new for old, new in zip(before, after, strict=True) if new is not old]

    with no_autocast_scope():  # the values as they are, not as a layer in mixed precision would see them
        values = [variable.value for variable in given]
    outputs, new_values = jax.checkpoint(segment)(values, list(inputs))
    for variable, value in zip(changed, new_values, strict=True):
        variable.assign(value)
    return list(outputs)
