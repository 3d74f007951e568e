"""Training steps on PyTorch: gradients add up where PyTorch keeps them, and a step that fails is rolled back."""

import warnings
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import keras
import torch

from fitroom.backends.torch.device import release
from fitroom.backends.torch.out_of_memory import is_out_of_memory
from fitroom.backends.torch.train.computation import Computation
from fitroom.backends.torch.train.micro_batches import MicroBatchRunner
from fitroom.backends.torch.train.processes import Processes, current_processes
from fitroom.backends.torch.train.rollback import Rollback
from fitroom.backends.torch.train.shared_step import SharedStep
from fitroom.backends.torch.train.transfer import pin, put_on_device
from fitroom.batch import Batch, StepName
from fitroom.keras_model.build import build_from_few
from fitroom.keras_model.losses import is_from_keras
from fitroom.keras_model.objective import Objective
from fitroom.keras_model.outputs import join, join_micro_batches
from fitroom.recipe import Remat


class TorchStepper:
    """Steps of one compiled model. Whole batches run through the model's own `train_step` and `test_step`.

    Every step is eager, which on PyTorch is Keras's default: with `jit_compile=True` too, since `torch.compile` leaves
    no place at which an update could be made safe.
    """

    batches_ahead = 1
    """On the host, in page-locked memory. `transfer.py` copies none of it to the card before its step."""

    def __init__(
        self,
        model: Any,
        *,
        put: Callable[[Batch], Batch] = put_on_device,
        remat: str | Remat | None = None,
        kernels: str | None = None,
        attention_dropout: str | None = None,
    ) -> None:
        self.model = model
        self._computation = Computation(model, remat=remat, kernels=kernels, attention_dropout=attention_dropout)
        self.objective = Objective(model)
        self._put = put
        """Transfers a batch, or a micro-batch, to the device."""
        self._runner = MicroBatchRunner(model, self.objective, put)
        self._rollback: Rollback | None = None
        self._shared: SharedStep | None = None
        """This process's part in steps of several; None where it trains alone."""

    def why_whole(self, step: StepName = "train_step") -> str | None:
        """Why this step must take its batches whole, or None where micro-batches are possible, as far as is known."""
        return self.objective.why_whole(step)

    def samples_per_device(self, batch_size: int) -> int:
        """The largest share of a batch, where several processes train together."""
        processes = current_processes()
        return batch_size if processes is None else processes.largest_share(batch_size)

    def trust(self, samples: int) -> None:
        """Nothing to skip: a step that does not fit is rolled back."""

    def prepare(self, batch: Batch) -> None:
        """Make weights, variables of the optimizer and of metrics, as Keras does with its first batch."""
        self._prepare_rollback(batch)

    def train(self, batch: Batch, micro_batch: int) -> dict[str, Any]:
        """One update."""
        self.prepare(batch)
        if (processes := current_processes()) is not None:
            return self._run_shared(processes, batch, micro_batch, "train_step")
        return self.train_micro_batches(self._micro_batches(batch, micro_batch, "train_step"))

    def train_micro_batches(self, micro_batches: Sequence[Batch]) -> dict[str, Any]:
        """One update from the micro-batches of a batch."""
        rollback = self._prepare_rollback(micro_batches[0])
        self._set_mode(training=True)
        computation = self._computation.during(max(each.size for each in micro_batches))
        with rollback.all_or_nothing() as before, computation:
            if len(micro_batches) > 1:
                rollback.drop_gradients()
                logs = self._runner.run(micro_batches, before, training=True)
                self._update()
            else:
                logs = dict(self.model.train_step(self._put(micro_batches[0]).data()))
            if self._has_keras_method("train_step"):  # one of the user's may want to find them at its next call
                rollback.drop_gradients()
        return logs

    def test(self, batch: Batch, micro_batch: int) -> dict[str, Any]:
        """One batch of `evaluate`."""
        rollback = self._prepare_rollback(batch)
        if (processes := current_processes()) is not None:
            return self._run_shared(processes, batch, micro_batch, "test_step")
        micro_batches = self._micro_batches(batch, micro_batch, "test_step")
        self._set_mode(training=False)
        computation = self._computation.during(max(each.size for each in micro_batches))
        with rollback.all_or_nothing() as before, torch.no_grad(), computation:
            if len(micro_batches) > 1:
                return self._runner.run(micro_batches, before, training=False)
            return dict(self.model.test_step(self._put(batch).data()))

    def _run_shared(self, processes: Processes, batch: Batch, micro_batch: int, step: StepName) -> dict[str, Any]:
        """One batch of which this process does a share."""
        processes.check_same(batch)
        self.objective.check_can_cut(step)
        self.objective.try_losses(batch, self.predict)
        rollback, training = self._prepare_rollback(batch), step == "train_step"
        if self._shared is None:
            self._shared = SharedStep(self.model, self.objective, self._runner, processes, rollback.seeds)
        if training:
            self._shared.prepare()
        self._set_mode(training=training)
        samples = min(micro_batch, self.samples_per_device(batch.size))
        gradients = nullcontext() if training else torch.no_grad()
        with rollback.all_or_nothing() as before, self._computation.during(samples), gradients:
            rollback.drop_gradients()
            logs = self._shared.run(batch, micro_batch, before, self._update if training else None)
            rollback.drop_gradients()
        return logs

    def predict(self, x: Any) -> Any:
        """The model's outputs for some inputs."""
        self._set_mode(training=False)
        batch = Batch(x=x)
        with torch.no_grad(), self._computation.during(batch.size):
            return self._outputs(batch)

    def predict_batch(self, batch: Batch, micro_batch: int) -> Any:
        """One batch of `predict`."""
        rollback = self._rollback or Rollback(self.model)
        self._set_mode(training=False)
        with rollback.all_or_nothing(), torch.no_grad(), self._computation.during(min(micro_batch, batch.size)):
            outputs = [self._outputs(part) for part in batch.micro_batches(micro_batch)]
        return join_micro_batches(outputs, [part.size for part in batch.micro_batches(micro_batch)])

    def _outputs(self, part: Batch) -> Any:
        outputs = self.model.predict_step(self._put(part).data())
        return keras.tree.map_structure(keras.ops.convert_to_numpy, outputs)

    def join(self, outputs: Sequence[Any]) -> Any:
        """The outputs of several batches of `predict`."""
        return join(outputs)

    def prefetch(self, batch: Batch) -> Batch:
        """Pin the batch, so that its transfer is fast. That starts later: Keras has one batch on the card at a time."""
        return pin(batch)

    def pause(self) -> None:
        """Nothing to drop: batches that were pinned belong to whoever asked for them."""

    def forget(self) -> None:
        """Drop the gradients; there are no compiled programs."""
        if self._rollback is not None:
            self._rollback.drop_gradients()

    def _prepare_rollback(self, batch: Batch) -> Rollback:
        if self._rollback is None:
            # With real tensors, not fake ones, which would be wrong where a model's shapes depend on its values.
            build_from_few(self.model, batch, is_out_of_memory=is_out_of_memory, release=release)
            self._rollback = Rollback(self.model)
        return self._rollback

    def _set_mode(self, *, training: bool) -> None:
        """Set the mode in which Keras has its modules in `fit` or in `evaluate`."""
        if self.model.training != training:
            self.model.train(training)

    def _micro_batches(self, batch: Batch, micro_batch: int, step: StepName) -> list[Batch]:
        """The micro-batches of a batch. Raises ModelError where there are several and the step needs a whole batch."""
        parts = batch.micro_batches(micro_batch)
        if len(parts) > 1:
            self.objective.check_can_cut(step)
            self.objective.try_losses(batch, self.predict)
        return parts

    def _has_keras_method(self, method: str) -> bool:
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
