"""The state of a Keras model as arrays on the host, captured and restored; the same on every backend."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import numpy as np

from fitroom.errors import InputError
from fitroom.keras_model.fingerprint import stable_path
from fitroom.keras_model.optimizers import extra_optimizers

_GROUPS = ("model", "optimizer", "metrics")
_HELPER, _TRAINED = "helper{}", "helper{}_trains"
"""Prefixes of the names for further optimizers that a model may have: their own variables, and the places of the
variables that each trains. These optimizers are built by their first step, which a resumed run has yet to do."""


def capture_state(model: Any) -> dict[str, Any]:
    """Copy weights, statistics, random generators, optimizer and metrics of a model, by stable names.

    The arrays are copies: no later step changes them.
    """
    found = {name: _copy_value(variable) for name, variable in _variables(model).items()}
    places = {id(variable): place for place, variable in enumerate(model.variables)}
    for number, helper in enumerate(extra_optimizers(model)):
        trained = [places.get(id(each)) for each in helper._trainable_variables]
        if helper.built and None not in trained:
            found[_TRAINED.format(number)] = np.array(trained, "int64")
            own = _named(_HELPER.format(number), helper.variables)
            found |= {name: _copy_value(variable) for name, variable in own.items()}
    return found


def restore_state(model: Any, arrays: Mapping[str, Any]) -> None:
    """Assign captured state to a model of the same build. Arrays of other names are ignored.

    Raises InputError, with nothing changed, where names or shapes differ.
    """
    variables = _variables(model)
    _check_same(variables, _select_groups(arrays, _GROUPS))
    for number, helper in enumerate(extra_optimizers(model)):
        trained = arrays.get(_TRAINED.format(number))
        if trained is None:
            continue
        if not helper.built:
            helper.build([model.variables[place] for place in trained])
        variables |= _named(_HELPER.format(number), helper.variables)
    helpers = {name.removesuffix("_trains") for name in arrays if name.startswith("helper") and "/" not in name}
    _check_same(variables, _select_groups(arrays, {*_GROUPS, *helpers}))
    for name, variable in variables.items():
        variable.assign(arrays[name])


def _select_groups(arrays: Mapping[str, Any], groups: Collection[str]) -> dict[str, Any]:
    return {name: array for name, array in arrays.items() if name.partition("/")[0] in groups}


def _check_same(variables: Mapping[str, Any], saved: Mapping[str, Any]) -> None:
    for name in [*saved, *variables]:
        if name not in variables:
            raise _other_model(f"it has {name!r}, which the model has not")
        if name not in saved:
            raise _other_model(f"the model has {name!r}, which it has not")
        if tuple(saved[name].shape) != tuple(variables[name].shape):
            shapes = f"{tuple(saved[name].shape)}, in the model {tuple(variables[name].shape)}"
            raise _other_model(f"{name!r} has the shape {shapes}")


def _variables(model: Any) -> dict[str, Any]:
    """Every variable once by its stable name, in the order in which Keras built them."""
    optimizer = model.optimizer
    if optimizer is not None and not optimizer.built:
        optimizer.build(model.trainable_variables)
    of_group = (model.variables, [] if optimizer is None else optimizer.variables, model.metrics_variables)
    found: dict[str, Any] = {}
    seen: set[int] = set()
    for group, variables in zip(_GROUPS, of_group, strict=True):
        new = {id(variable): variable for variable in variables if id(variable) not in seen}
        seen |= set(new)
        found |= _named(group, new.values())
    return found


def _named(group: str, variables: Iterable[Any]) -> dict[str, Any]:
    return {f"{group}/{number:05d}/{stable_path(one.path)}": one for number, one in enumerate(variables)}


def _copy_value(variable: Any) -> Any:
    """A copy on the host: on the CPU a framework may give a view of its own memory, which the next step overwrites."""
    import keras

    value = variable.value
    # A metric of a `tf.distribute` strategy is one variable a replica, which Keras's own function cannot read.
    is_distributed = isinstance(getattr(value, "values", None), tuple)
    array = value.numpy() if is_distributed else keras.ops.convert_to_numpy(value)
    return array if array.flags.owndata and array.flags.writeable else np.array(array, copy=True)


def _other_model(difference: str) -> InputError:
    return InputError(
        f"The checkpoint is of another model: {difference}.",
        hint="build and compile the model as the run began with, or give another `run_dir`",
    )
