"""The state of a Keras model as arrays on the host, and back; the same on every backend."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from fitroom.backends.keras_optimizers import helpers_of
from fitroom.errors import InputError
from fitroom.train.run.fingerprint import stable_path

_GROUPS = ("model", "optimizer", "metrics")
_TRAINED, _HELPER = "helper{}/trained", "helper{}/{:05d}"
"""Of the further optimizers that a model may bring: the places of the variables that one trains, and its own variables.
They are built by their first step, which a run that goes on has yet to do."""


def capture_state(model: Any) -> dict[str, Any]:
    """Weights, statistics, random generators, optimizer and metrics of a model, by stable names.

    The arrays are copies: no later step changes them.
    """
    found = {name: _copied(variable) for name, variable in _variables(model).items()}
    places = {id(variable): place for place, variable in enumerate(model.variables)}
    for number, helper in enumerate(helpers_of(model)):
        trained = [places.get(id(each)) for each in helper._trainable_variables]
        if helper.built and None not in trained:
            found[_TRAINED.format(number)] = np.array(trained, "int64")
            found |= {_HELPER.format(number, place): _copied(each) for place, each in enumerate(helper.variables)}
    return found


def restore_state(model: Any, arrays: Mapping[str, Any]) -> None:
    """Put captured state back into a model of the same build. Other arrays may be among them.

    Raises InputError, with nothing changed, where names or shapes differ.
    """
    variables = _variables(model)
    kept = {name: array for name, array in arrays.items() if name.partition("/")[0] in _GROUPS}
    for name in [*kept, *variables]:
        if name not in variables:
            raise _other(f"it has {name!r}, which the model has not")
        if name not in kept:
            raise _other(f"the model has {name!r}, which it has not")
        if tuple(kept[name].shape) != tuple(variables[name].shape):
            shapes = f"{tuple(kept[name].shape)}, in the model {tuple(variables[name].shape)}"
            raise _other(f"{name!r} has the shape {shapes}")
    for name, variable in variables.items():
        variable.assign(kept[name])
    for number, helper in enumerate(helpers_of(model)):
        trained = arrays.get(_TRAINED.format(number))
        if trained is None:
            continue
        if not helper.built:
            helper.build([model.variables[place] for place in trained])
        for place, variable in enumerate(helper.variables):
            variable.assign(arrays[_HELPER.format(number, place)])


def _variables(model: Any) -> dict[str, Any]:
    """Every variable once, in Keras's order, which is that of building."""
    optimizer = model.optimizer
    if optimizer is not None and not optimizer.built:
        optimizer.build(model.trainable_variables)
    of_group = (model.variables, [] if optimizer is None else optimizer.variables, model.metrics_variables)
    found: dict[str, Any] = {}
    seen: set[int] = set()
    for group, variables in zip(_GROUPS, of_group, strict=True):
        new = {id(variable): variable for variable in variables if id(variable) not in seen}
        seen |= set(new)
        found |= {f"{group}/{number:05d}/{stable_path(one.path)}": one for number, one in enumerate(new.values())}
    return found


def _copied(variable: Any) -> Any:
    """On the CPU a framework may lend its own memory, which the next step overwrites."""
    import keras

    array = keras.ops.convert_to_numpy(variable.value)
    return array if array.flags.owndata and array.flags.writeable else np.array(array, copy=True)


def _other(difference: str) -> InputError:
    return InputError(
        f"The checkpoint is of another model: {difference}.",
        hint="build and compile the model as the run began with, or give another `run_dir`",
    )
