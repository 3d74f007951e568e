"""Training steps on PyTorch: gradients add up where PyTorch keeps them, and a step that fails is taken back."""

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import keras
import torch

from fitroom.backends.torch.device import release
from fitroom.backends.torch.out_of_memory import is_out_of_memory
from fitroom.backends.torch.train.micro_batches import Parts
from fitroom.backends.torch.train.recompute import recomputing
from fitroom.backends.torch.train.rollback import Rollback
from fitroom.backends.torch.train.transfer import on_device, pinned
from fitroom.batch import Batch, StepName
from fitroom.keras_model.build import build_from_few
from fitroom.keras_model.losses import is_from_keras
from fitroom.keras_model.objective import Objective
from fitroom.keras_model.outputs import join, join_micro_batches
from fitroom.keras_model.recompute import Rematerialisation
from fitroom.recipe import Remat


class TorchStepper:
    """Steps of one compiled model. Whole batches run through the model's own `train_step` and `test_step`.

    Every step is eager, which on PyTorch is Keras's default: with `jit_compile=True` too, since `torch.compile` leaves
    no place at which an update could be made safe.
    """

    batches_ahead = 1

    def __init__(
        self, model: Any, *, put: Callable[[Batch], Batch] = on_device, remat: str | Remat | None = None
    ) -> None:
        self.model = model
        self._rematerialisation = Rematerialisation(model, remat, recomputing(model))
        self.objective = Objective(model)
        self._put = put
        """Brings a batch, or a part of one, to the device."""
        self._cut = Parts(model, self.objective, put)
        self._rollback: Rollback | None = None

    def why_whole(self, step: StepName = "train_step") -> str | None:
        """Why batches of this model cannot be cut for this step, or None where they can, as far as is known."""
        return self.objective.why_whole(step)

    def trust(self, samples: int) -> None:
        """A step that does not fit does no harm."""

    def prepare(self, batch: Batch) -> None:
        """Make weights, variables of the optimizer and of metrics, as Keras does with its first batch."""
        self._prepared(batch)

    def train(self, batch: Batch, micro_batch: int) -> dict[str, Any]:
        """One update."""
        self.prepare(batch)
        return self.train_parts(self._parts(batch, micro_batch, "train_step"))

    def train_parts(self, parts: Sequence[Batch]) -> dict[str, Any]:
        """One update from a batch that is cut already."""
        rollback = self._prepared(parts[0])
        self._switch(training=True)
        in_segments = self._rematerialisation.during(max(part.size for part in parts))
        with rollback.all_or_nothing() as before, in_segments:
            if len(parts) > 1:
                rollback.drop_gradients()
                logs = self._cut.run(parts, before, training=True)
                self._update()
            else:
                logs = dict(self.model.train_step(self._put(parts[0]).data()))
            if self._is_from_keras("train_step"):  # one of the user's may want to find them at its next call
                rollback.drop_gradients()
        return logs

    def test(self, batch: Batch, micro_batch: int) -> dict[str, Any]:
        """One batch of `evaluate`."""
        rollback = self._prepared(batch)
        parts = self._parts(batch, micro_batch, "test_step")
        self._switch(training=False)
        with rollback.all_or_nothing() as before, torch.no_grad():
            if len(parts) > 1:
                return self._cut.run(parts, before, training=False)
            return dict(self.model.test_step(self._put(batch).data()))

    def predict(self, x: Any) -> Any:
        """The model's outputs for some inputs."""
        self._switch(training=False)
        with torch.no_grad():
            return self._outputs(Batch(x=x))

    def predict_batch(self, batch: Batch, micro_batch: int) -> Any:
        """One batch of `predict`."""
        rollback = self._rollback or Rollback(self.model)
        self._switch(training=False)
        with rollback.all_or_nothing(), torch.no_grad():
            outputs = [self._outputs(part) for part in batch.parts(micro_batch)]
        return join_micro_batches(outputs, [part.size for part in batch.parts(micro_batch)])

    def _outputs(self, part: Batch) -> Any:
        outputs = self.model.predict_step(self._put(part).data())
        return keras.tree.map_structure(keras.ops.convert_to_numpy, outputs)

    def join(self, outputs: Sequence[Any]) -> Any:
        """The outputs of several batches of `predict`."""
        return join(outputs)

    def prefetch(self, batch: Batch) -> Batch:
        """The batch where the card can fetch it fast. It is not put there yet: Keras has one batch on it at a time."""
        return pinned(batch)

    def pause(self) -> None:
        """Batches that were brought near go with whoever asked for them."""

    def forget(self) -> None:
        """Drop the gradients; nothing is compiled."""
        if self._rollback is not None:
            self._rollback.drop_gradients()

    def _prepared(self, batch: Batch) -> Rollback:
        if self._rollback is None:
            # Really, and not on fake tensors: where a model's shapes go by its values, those would lead astray.
            build_from_few(self.model, batch, is_out_of_memory=is_out_of_memory, release=release)
            self._rollback = Rollback(self.model)
        return self._rollback

    def _switch(self, *, training: bool) -> None:
        """Into the mode in which Keras has its modules in `fit` or in `evaluate`."""
        if self.model.training != training:
            self.model.train(training)

    def _parts(self, batch: Batch, micro_batch: int, step: StepName) -> list[Batch]:
        """The parts of a batch, if it can be cut."""
        parts = batch.parts(micro_batch)
        if len(parts) > 1:
            self.objective.check_can_cut(step)
            self.objective.try_losses(batch, self.predict)
        return parts

    def _is_from_keras(self, method: str) -> bool:
        return is_from_keras(getattr(type(self.model), method))

    def _update(self) -> None:
        weights = self.model.trainable_weights
        if not weights:
            warnings.warn("The model does not have any trainable weights.", stacklevel=2)
            return
        with torch.no_grad():
            self.model.optimizer.apply(self._gradients(weights), weights)

    def _gradients(self, weights: Sequence[Any]) -> list[Any]:
        return [weight._value.grad for weight in weights]
