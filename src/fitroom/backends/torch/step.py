"""The real Keras step on PyTorch, run on fake tensors."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import keras
import torch

from fitroom.backends.keras_layers import layer_paths
from fitroom.backends.prepared import PreparedModel
from fitroom.backends.torch.collector import Collector
from fitroom.backends.torch.fake_mode import DEVICE, FakeMode
from fitroom.backends.torch.lent_values import lent_values, torch_dtype
from fitroom.backends.torch.platform import Platform
from fitroom.backends.torch.recorder import Recorder
from fitroom.backends.torch.state import StateVariable, state_of
from fitroom.backends.torch.step_log import StepLog
from fitroom.backends.torch.whereabouts import Whereabouts
from fitroom.errors import ModelError

STEPS = 3
"""How many are run at least: gradients, metrics and logs of one are still held in the next; the last one is steady."""


@dataclass(frozen=True, kw_only=True)
class TorchStep:
    """A step as Keras runs it on PyTorch: a function of one batch."""

    model: Any
    function: Callable[[Any], Any]
    specs: tuple[Any, ...]
    """The batch, as structures of TensorSpec: `(x, y)` for training, `(x,)` for predict."""

    training: bool

    @property
    def state(self) -> list[StateVariable]:
        """The variables that are on the device meanwhile."""
        return state_of(self.model, training=self.training)

    def batch(self, device: str, note: Callable[[Any], None] = lambda tensor: None) -> Any:
        """A batch as `fit` and `predict` take it from arrays: copied to the device before the step."""

        def copied(spec: Any) -> Any:
            tensor = torch.zeros(spec.shape, dtype=torch_dtype(spec.dtype), device=device)
            note(tensor)
            return tensor

        # Not `keras.tree`, which leaves references behind.
        return tuple(torch.utils._pytree.tree_map(copied, part) for part in self.specs)


@dataclass(frozen=True, kw_only=True)
class RecordedSteps:
    """Some steps on end, from a model that has just been made."""

    step: TorchStep
    log: StepLog
    last_step: int
    """The moment at which the last of them begins."""


def training_steps(prepared: PreparedModel, platform: Platform) -> RecordedSteps:
    """The first steps of `fit`, given the first targets that its loss takes."""
    model = prepared.model
    refusals: list[Exception] = []
    for y in prepared.y_candidates:
        step = TorchStep(model=model, function=model.train_step, specs=(prepared.x, y), training=True)
        try:
            return _recorded(step, platform)
        except Exception as error:  # the step is the user's own code, or Keras's: anything can come of it
            refusals.append(error)
    raise ModelError(
        f"The training step of {model.name!r} could not be traced: {_last_line(refusals[0])}",
        hint="does `model.fit` run on the CPU with this loss and a batch of this shape?",
    ) from refusals[0]


def predict_steps(prepared: PreparedModel, platform: Platform) -> RecordedSteps:
    """The first steps of `predict`."""
    model = prepared.model

    def predict(data: Any) -> Any:
        with torch.no_grad():
            return model.predict_step(data)

    try:
        return _recorded(TorchStep(model=model, function=predict, specs=(prepared.x,), training=False), platform)
    except Exception as error:
        raise ModelError(
            f"The predict step of {model.name!r} could not be traced: {_last_line(error)}",
            hint="does `model.predict` run on the CPU with a batch of this shape?",
        ) from error


def _recorded(step: TorchStep, platform: Platform) -> RecordedSteps:
    model, state = step.model, step.state
    variables = [each.variable for each in state]
    with keras.device(DEVICE), FakeMode(), lent_values(model, variables, DEVICE):
        owners = {id(each.variable._value): each.layer for each in state if each.layer}
        whereabouts = Whereabouts({id(layer): path for path, layer in layer_paths(model)}, owners)
        recorder = Recorder(whereabouts, platform.kernels)
        for each in state:
            recorder.born(each.variable._value, each.kind, each.layer)
        torch.nn.Module.train(model, step.training)
        with platform.functions(), whereabouts.followed(model), recorder, Collector() as collector:
            batch = result = None
            while collector.steps_to_go(at_least=STEPS):
                whereabouts.begin_step()
                last_step = len(recorder.log.moments)
                # As in `fit` and `predict`, one batch is there until the next is, and so is what its step returned.
                batch = step.batch(DEVICE, recorder.is_input)
                result = step.function(batch)
            for each in state:
                _claim_gradient(recorder, each)
            recorder.is_open = False
            del batch, result
    return RecordedSteps(step=step, log=recorder.log, last_step=last_step)


def _claim_gradient(recorder: Recorder, each: StateVariable) -> None:
    """A weight's gradient belongs to the layer that owns the weight, whatever made it."""
    gradient = each.variable._value.grad
    number = recorder.number_of(gradient) if gradient is not None else None
    if number is not None:
        recorder.log.buffers[number].kind = "gradients"
        recorder.log.buffers[number].layer = each.layer


def _last_line(error: Exception) -> str:
    """What an error says. Keras puts where it happened above it, and what the layer was given below."""
    said = str(error).split("Arguments received by")[0].strip().splitlines()
    return (said[-1] if said else type(error).__name__).replace("\033[1m", "").replace("\033[0m", "")[:300]
