"""The real Keras step on PyTorch, run on fake tensors."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import keras
import torch

from fitroom.backends.torch.trace.attribution import LayerTracker
from fitroom.backends.torch.trace.borrowed_variables import borrow_variables
from fitroom.backends.torch.trace.collector import Collector
from fitroom.backends.torch.trace.fake_mode import DEVICE, FakeMode, import_ahead, silence_fake_tensor_log
from fitroom.backends.torch.trace.platform import Platform
from fitroom.backends.torch.trace.recorder import Recorder
from fitroom.backends.torch.trace.step_log import StepLog
from fitroom.backends.torch.trace.zero_step import Observer, TorchStep, micro_batch_step
from fitroom.backends.torch.train.computation import Computation
from fitroom.batch import Batch
from fitroom.errors import InputError, ModelError, message_of
from fitroom.keras_model.layers import layer_paths
from fitroom.keras_model.prepared import PreparedModel


@dataclass(frozen=True, kw_only=True)
class RecordedSteps:
    """The first steps of a model that has just been made, one after another, recorded."""

    step: TorchStep
    log: StepLog
    last_step: int
    """The moment at which the last of them begins."""

    last_event: int
    """The first event of that step."""

    older_collections_a_step: float
    """How often in a step Python collects what has survived a collection of garbage."""


def training_steps(prepared: PreparedModel, platform: Platform) -> RecordedSteps:
    """The first steps of `fit`, in micro-batches as the request says, with the first targets that its loss takes."""
    model, recipe, sizes = prepared.model, prepared.request.recipe, prepared.request.micro_batch_sizes
    computation = Computation(
        model, remat=recipe.remat, kernels=recipe.kernels, attention_dropout=recipe.attention_dropout
    )
    function = computation.of_step(model.train_step, prepared.num_samples)
    refusals: list[Exception] = []
    for y in prepared.y_candidates:
        data = Batch(x=prepared.x, y=y).data()
        step = TorchStep(model=model, function=function, specs=data, training=True)
        try:
            if sizes:
                step = micro_batch_step(model, (prepared.x, y), sizes, recipe)
                step.check()
            return _record(step, platform)
        except (ModelError, InputError):
            raise
        except Exception as error:  # the step is the user's own code, or Keras's: anything can come of it
            refusals.append(error)
    raise ModelError(
        f"The training step of {model.name!r} could not be traced: {_last_line(refusals[0])}",
        hint="does `model.fit` run on the CPU with this loss and a batch of this shape?",
    ) from refusals[0]


def predict_steps(prepared: PreparedModel, platform: Platform) -> RecordedSteps:
    """The first steps of `predict`."""
    model, recipe = prepared.model, prepared.request.recipe
    computation = Computation(model, remat=None, kernels=recipe.kernels, attention_dropout=recipe.attention_dropout)

    def predict(data: Any) -> Any:
        with torch.no_grad(), computation.during(prepared.num_samples):
            return model.predict_step(data)

    try:
        return _record(TorchStep(model=model, function=predict, specs=(prepared.x,), training=False), platform)
    except Exception as error:
        raise ModelError(
            f"The predict step of {model.name!r} could not be traced: {_last_line(error)}",
            hint="does `model.predict` run on the CPU with a batch of this shape?",
        ) from error


def _record(step: TorchStep, platform: Platform) -> RecordedSteps:
    import_ahead()
    model, state = step.model, step.state
    variables = [each.variable for each in state]
    with silence_fake_tensor_log(), keras.device(DEVICE), FakeMode(), borrow_variables(model, variables, DEVICE):
        owners = {id(each.variable._value): each.layer for each in state if each.layer}
        tracker = LayerTracker({id(layer): path for path, layer in layer_paths(model)}, owners)
        recorder = Recorder(tracker, platform.kernels)
        for each in state:
            recorder.follow(each.variable._value, each.kind, each.layer)
        observer = _RecordingObserver(recorder, owners)
        torch.nn.Module.train(model, step.training)
        with platform.functions(), tracker.track(model), recorder, Collector(recorder.log) as collector:
            batch = result = None
            while collector.steps_to_go(at_least=step.least_runs):
                tracker.begin_step()
                last_step, last_event = len(recorder.log.moments), len(recorder.log.events)
                # As in `fit` and `predict`, one batch is there until the next is, and so is what its step returned.
                batch = step.batch(DEVICE, observer)
                result = step.function(batch)
            observer.gradients_are_ready([each.variable for each in state])
            recorder.is_open = False
            del batch, result
    return RecordedSteps(
        step=step,
        log=recorder.log,
        last_step=last_step,
        last_event=last_event,
        older_collections_a_step=collector.older_collections_a_step,
    )


class _RecordingObserver(Observer):
    def __init__(self, recorder: Recorder, owners: dict[int, str]) -> None:
        self._recorder, self._owners = recorder, owners

    def input_came(self, tensor: Any) -> None:
        self._recorder.mark_input(tensor)

    def micro_batch_begins(self) -> None:
        self._recorder.tracker.begin_step()

    def gradients_are_ready(self, weights: Sequence[Any]) -> None:
        """A weight's gradient belongs to the layer that owns the weight, whatever made it."""
        for weight in weights:
            gradient = weight._value.grad
            number = self._recorder.number_of(gradient) if gradient is not None else None
            if number is not None:
                self._recorder.log.buffers[number].kind = "gradients"
                self._recorder.log.buffers[number].layer = self._owners.get(id(weight._value))


def _last_line(error: Exception) -> str:
    """What an error says. Keras puts where it happened above it, and what the layer was given below."""
    said = message_of(error).split("Arguments received by")[0].strip().splitlines()
    return (said[-1] if said else type(error).__name__).replace("\033[1m", "").replace("\033[0m", "")[:300]
