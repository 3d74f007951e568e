"""Training steps on PyTorch: gradients add up where PyTorch keeps them, and a step that fails is taken back."""

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import keras
import torch

from fitroom.backends.keras_objective import Objective
from fitroom.backends.torch.moved import Moved
from fitroom.backends.torch.rollback import Rollback
from fitroom.backends.torch.snapshot import Snapshot
from fitroom.backends.torch.transfer import on_device, pinned
from fitroom.errors import ModelError
from fitroom.train.batch import Batch


class TorchStepper:
    """Steps of one compiled model. Whole batches run through the model's own `train_step` and `test_step`.

    Every step is eager, which on PyTorch is Keras's default: with `jit_compile=True` too, since `torch.compile` leaves
    no place at which an update could be made safe.
    """

    def __init__(self, model: Any, *, put: Callable[[Batch], Batch] = on_device) -> None:
        self.model = model
        self.objective = Objective(model)
        self._put = put
        """Brings a batch, or a part of one, to the device."""
        self._rollback: Rollback | None = None

    @property
    def why_whole(self) -> str | None:
        """Why batches of this model cannot be cut, or None where they can."""
        return self.objective.why_whole

    def prepare(self, batch: Batch) -> None:
        """Make weights, variables of the optimizer and of metrics, as Keras does with its first batch."""
        self._prepared(batch)

    def train(self, batch: Batch, micro_batch: int) -> dict[str, Any]:
        """One update."""
        self.prepare(batch)
        return self.train_parts(self._parts(batch, micro_batch, own="train_step"))

    def train_parts(self, parts: Sequence[Batch]) -> dict[str, Any]:
        """One update from a batch that is cut already."""
        rollback = self._prepared(parts[0])
        self._switch(training=True)
        with rollback.all_or_nothing() as before:
            if len(parts) > 1:
                rollback.drop_gradients()
                logs = self._summed(parts, before, training=True)
                self._update()
            else:
                logs = dict(self.model.train_step(self._put(parts[0]).data()))
            if self._is_kerass("train_step"):  # one of the user's may want to find them at its next call
                rollback.drop_gradients()
        return logs

    def test(self, batch: Batch, micro_batch: int) -> dict[str, Any]:
        """One batch of `evaluate`."""
        rollback = self._prepared(batch)
        parts = self._parts(batch, micro_batch, own="test_step")
        self._switch(training=False)
        with rollback.all_or_nothing() as before, torch.no_grad():
            if len(parts) > 1:
                return self._summed(parts, before, training=False)
            return dict(self.model.test_step(self._put(batch).data()))

    def predict(self, x: Any) -> Any:
        """The model's outputs for some inputs."""
        self._switch(training=False)
        with torch.no_grad():
            outputs = self.model.predict_step(self._put(Batch(x=x)).data())
        return keras.tree.map_structure(keras.ops.convert_to_numpy, outputs)

    def ahead(self, batch: Batch) -> Batch:
        """The batch where the card can fetch it fast. It is not put there yet: Keras has one batch on it at a time."""
        return pinned(batch)

    def forget(self) -> None:
        """Drop the gradients; nothing is compiled."""
        if self._rollback is not None:
            self._rollback.drop_gradients()

    def _prepared(self, batch: Batch) -> Rollback:
        if self._rollback is None:
            self.model._symbolic_build(data_batch=batch.data())  # no public name
            self._rollback = Rollback(self.model)
        return self._rollback

    def _switch(self, *, training: bool) -> None:
        """Into the mode in which Keras has its modules in `fit` or in `evaluate`."""
        if self.model.training != training:
            self.model.train(training)

    def _parts(self, batch: Batch, micro_batch: int, *, own: str) -> list[Batch]:
        """The parts of a batch, if it can be cut."""
        parts = batch.parts(micro_batch)
        if len(parts) > 1:
            why = self.why_whole if self._is_kerass(own) else f"the model brings its own `{own}`"
            if why is not None:
                raise ModelError(
                    f"Batches of {self.model.name!r} cannot be cut into micro-batches: {why}.",
                    hint="leave `micro_batch` out, and choose a batch_size that fits whole",
                )
            self.objective.try_losses(batch, self.predict)
        return parts

    def _is_kerass(self, method: str) -> bool:
        return bool(getattr(type(self.model), method).__module__.startswith("keras."))

    def _update(self) -> None:
        weights = self.model.trainable_weights
        if not weights:
            warnings.warn("The model does not have any trainable weights.", stacklevel=2)
            return
        with torch.no_grad():
            self.model.optimizer.apply(self._gradients(weights), weights)

    def _gradients(self, weights: Sequence[Any]) -> list[Any]:
        return [weight._value.grad for weight in weights]

    def _summed(self, parts: Sequence[Batch], before: Snapshot, *, training: bool) -> dict[str, Any]:
        """Run the parts; the logs of the whole batch. In training, their gradients are added up in the weights."""
        num_samples = sum(part.size for part in parts)
        shares = self.objective.shares(parts, self._divisors(parts) if self.objective.counts else None)
        moved = Moved(before)
        total: Any = 0.0
        values: list[Any] = []
        logs: dict[str, Any] = {}
        for part, row in zip(parts, shares, strict=True):
            moved.begin_part()
            share = part.size / num_samples
            added, of_losses, logs = self._run(part, share, [float(each) for each in row], training=training)
            moved.end_part(share)
            total = total + added
            values = [sum(pair) for pair in zip(values, of_losses, strict=True)] if values else of_losses
        moved.finish()
        self.objective.track(total, values, num_samples)
        new = self.model.get_metrics_result()
        return {name: new.get(name, value) for name, value in logs.items()}

    def _run(
        self, part: Batch, share: float, shares: Sequence[float], *, training: bool
    ) -> tuple[Any, list[Any], dict[str, Any]]:
        """One part. All that it holds on the device ends with this call, except for the gradients."""
        model, there = self.model, self._put(part)
        y_pred = self._call(there.x, training=training)
        total, values = self.objective.loss(there.y, y_pred, there.sample_weight, model.losses, shares, share)
        if training and model.trainable_weights:
            model.optimizer.scale_loss(total).backward()
        logs = model.compute_metrics(there.x, there.y, y_pred, there.sample_weight)
        return total.detach(), [value.detach() for value in values], logs

    def _divisors(self, parts: Sequence[Batch]) -> list[list[float]]:
        """What the losses divide each part by, found in a forward pass of its own."""
        return [self._divisors_of(part) for part in parts]

    def _divisors_of(self, part: Batch) -> list[float]:
        there = self._put(part)
        with torch.no_grad():
            divisors = self.objective.divisors(there.y, self._call(there.x, training=False), there.sample_weight)
        found: list[float] = divisors.tolist()
        return found

    def _call(self, x: Any, *, training: bool) -> Any:
        return self.model(x, training=training) if self.model._call_has_training_arg else self.model(x)
