"""A model's variables as the state that Keras's steps on JAX take and return.

Values go by reference, past `assign`, which would check and convert each of them.

A step takes its state with the last layer's variables first. XLA plans a program from its outputs. With the first
layer's new weights in front it begins with what comes last in a backward pass, and holds activations longer: Xception's
step takes 4 % more memory, EfficientNetB0's 7 %, DenseNet121's 2 %, ResNet50's as much. The order changes nothing else.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from fitroom.errors import ModelError

Groups = tuple[Sequence[Any], ...]


def variables_of(model: Any) -> Groups:
    """The variables in the groups of `train_step`: trainable, not trainable, the optimizer's, the metrics'.

    A caller looks them up once, since Keras walks over all layers for them.
    """
    return (
        model.trainable_variables,
        model.non_trainable_variables,
        [] if model.optimizer is None else model.optimizer.variables,
        model.metrics_variables,
    )


def check_has_values(model: Any) -> None:
    """Raise ModelError where variables have no values."""
    gone = [variable.path for variable in model.variables if variable._value is None]
    if gone:
        raise ModelError(
            f"{len(gone)} variables of {model.name!r} have no values, {gone[0]!r} among them.",
            hint="a `model.fit` that died takes them along on JAX: build the model anew and load its weights",
        )


def read(groups: Groups) -> tuple[list[Any], ...]:
    """The arrays of the variables, no array twice: it can be given up only once."""
    values = tuple([variable._value for variable in group] for group in groups)
    arrays = [array for group in values for array in group]
    if len(set(map(id, arrays))) < len(arrays):
        seen: set[int] = set()
        values = tuple([_first_or_copy(array, seen) for array in group] for group in values)
    return values


def write(groups: Groups, values: Sequence[Sequence[Any]]) -> None:
    """Give the variables new arrays, all but those whose new one is None."""
    for group, arrays in zip(groups, values, strict=True):
        for variable, array in zip(group, arrays, strict=True):
            if array is not None:
                variable._value = array


def defragment(groups: Groups) -> None:
    """Copy the values to the host and back, so that the allocator puts them side by side.

    That leaves more room in one piece. An array that somebody else holds stays where it is as well.
    """
    places = [[_place(variable._value) for variable in group] for group in groups]
    on_host = [[np.asarray(variable._value) for variable in group] for group in groups]
    write(groups, on_host)
    pairs = [zip(*rows, strict=True) for rows in zip(on_host, places, strict=True)]
    write(groups, [[jax.device_put(array, place) for array, place in group] for group in pairs])


def _place(array: Any) -> Any:
    """Where an array lies, if that is on several devices; None for the default device."""
    return array.sharding if len(array.devices()) > 1 else None


def is_lost(values: Any) -> bool:
    """Whether any of the arrays was given up."""
    return any(array.is_deleted() for array in jax.tree.leaves(values))


def _first_or_copy(array: Any, seen: set[int]) -> Any:
    if id(array) in seen:
        return jax.numpy.copy(array)
    seen.add(id(array))
    return array


StepFunction = Callable[[Any, Any], tuple[Any, Any]]
"""`logs, new_state = step(state, data)`, as Keras's steps on JAX are."""


def reverse_groups(groups: Sequence[Sequence[Any]]) -> tuple[list[Any], ...]:
    """The variables of each group, or their values, from last to first; applied twice, in their own order again."""
    return tuple(list(group)[::-1] for group in groups)


def with_reversed_state(step: StepFunction) -> StepFunction:
    """The step as one that takes and returns its state from last to first, as `reverse_groups` has it."""

    def run(state: Any, data: Any) -> tuple[Any, Any]:
        logs, new_state = step(reverse_groups(state), data)
        return logs, reverse_groups(new_state)

    return run
