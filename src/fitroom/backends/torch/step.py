"""The real Keras step on PyTorch, run on fake tensors."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import keras
import torch

from fitroom.backends.keras_layers import layer_paths, owners_of_slots, owners_of_variables
from fitroom.backends.prepared import PreparedModel
from fitroom.backends.torch.collector import Collector
from fitroom.backends.torch.fake_mode import FakeMode
from fitroom.backends.torch.lent_values import lent_values, torch_dtype
from fitroom.backends.torch.platform import Platform
from fitroom.backends.torch.recorder import DEVICE, Recorder
from fitroom.backends.torch.step_log import StepLog
from fitroom.backends.torch.whereabouts import Whereabouts
from fitroom.errors import ModelError
from fitroom.estimating.timeline import Kind

STEPS = 3
"""How many are run at least: gradients, metrics and logs of one are still held in the next; the last one is steady."""


@dataclass(frozen=True, kw_only=True)
class RecordedSteps:
    """Some steps on end, from a model that has just been made."""

    log: StepLog
    last_step: int
    """The moment at which the last of them begins."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _StateVariable:
    """A variable that is on the device all the time."""

    variable: Any
    kind: Kind
    layer: str | None


def training_steps(prepared: PreparedModel, platform: Platform) -> RecordedSteps:
    """The first steps of `fit`, given the first targets that its loss takes."""
    model = prepared.model
    refusals: list[Exception] = []
    for y in prepared.y_candidates:
        try:
            return _recorded(model, model.train_step, (prepared.x, y), platform, training=True)
        except Exception as error:  # the step is the user's own code, or Keras's: anything can come of it
            refusals.append(error)
    raise ModelError(
        f"The training step of {model.name!r} could not be traced: {_first_line(refusals[0])}",
        hint="does `model.fit` run on the CPU with this loss and a batch of this shape?",
    ) from refusals[0]


def predict_steps(prepared: PreparedModel, platform: Platform) -> RecordedSteps:
    """The first steps of `predict`."""
    model = prepared.model

    def predict(data: Any) -> Any:
        with torch.no_grad():
            return model.predict_step(data)

    try:
        return _recorded(model, predict, (prepared.x,), platform, training=False)
    except Exception as error:
        raise ModelError(
            f"The predict step of {model.name!r} could not be traced: {_first_line(error)}",
            hint="does `model.predict` run on the CPU with a batch of this shape?",
        ) from error


def _recorded(
    model: Any, step: Callable[[Any], Any], specs: tuple[Any, ...], platform: Platform, *, training: bool
) -> RecordedSteps:
    state = _state_of(model, training=training)
    variables = [each.variable for each in state]
    with keras.device(DEVICE), FakeMode(), lent_values(model, variables):
        owners = {id(each.variable._value): each.layer for each in state if each.layer}
        whereabouts = Whereabouts({id(layer): path for path, layer in layer_paths(model)}, owners)
        recorder = Recorder(whereabouts, platform.kernels)
        for each in state:
            recorder.born(each.variable._value, each.kind, each.layer)
        torch.nn.Module.train(model, training)
        with platform.functions(), whereabouts.followed(model), recorder, Collector() as collector:
            batch = result = None
            while collector.steps_to_go(at_least=STEPS):
                whereabouts.begin_step()
                last_step = len(recorder.log.moments)
                # As in `fit` and `predict`, one batch is there until the next is, and so is what its step returned.
                batch = _batch(recorder, specs)
                result = step(batch)
            for each in state:
                _claim_gradient(recorder, each)
            recorder.is_open = False
            del batch, result
    return RecordedSteps(log=recorder.log, last_step=last_step)


def _batch(recorder: Recorder, specs: tuple[Any, ...]) -> Any:
    """A batch as Keras takes it from arrays: copied to the card before the step."""

    def copied(spec: Any) -> Any:
        tensor = torch.empty(spec.shape, dtype=torch_dtype(spec.dtype), device=DEVICE)
        number = recorder.number_of(tensor)
        if number is not None:
            recorder.log.buffers[number].kind = "input"
        return tensor

    # Not `keras.tree`, which leaves references behind.
    return tuple(torch.utils._pytree.tree_map(copied, part) for part in specs)


def _state_of(model: Any, *, training: bool) -> list[_StateVariable]:
    """Weights, then the optimizer's variables, then those of metrics: in the order in which they are made."""
    owners = owners_of_variables(model)
    optimizer = model.optimizer.variables if training else []
    if training:
        owners |= owners_of_slots(model, owners)
    groups: list[tuple[Kind, Any]] = [("weights", model.variables), ("optimizer", optimizer)]
    groups.append(("other", model.metrics_variables if training else []))
    found = {
        id(variable): _StateVariable(variable=variable, kind=kind, layer=owners.get(id(variable)))
        for kind, group in reversed(groups)
        for variable in reversed(group)
    }
    return list(reversed(found.values()))


def _claim_gradient(recorder: Recorder, each: _StateVariable) -> None:
    """A weight's gradient belongs to the layer that owns the weight, whatever made it."""
    gradient = each.variable._value.grad
    number = recorder.number_of(gradient) if gradient is not None else None
    if number is not None:
        recorder.log.buffers[number].kind = "gradients"
        recorder.log.buffers[number].layer = each.layer


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:300]
