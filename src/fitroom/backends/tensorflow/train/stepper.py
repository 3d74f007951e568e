"""Training steps on TensorFlow: a program for the gradients, one for the update, and values from before for both."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from fitroom.backends.tensorflow.device import release
from fitroom.backends.tensorflow.train.computation import Computation
from fitroom.backends.tensorflow.train.host import (
    HOST,
    as_tensors,
    concatenate,
    first_micro_batch,
    is_of_arrays,
    on_host,
    split_batch,
)
from fitroom.backends.tensorflow.train.micro_batches import StepFunctions
from fitroom.backends.tensorflow.train.mirrored import MirroredStepper
from fitroom.backends.tensorflow.train.programs import Program
from fitroom.backends.tensorflow.train.rollback import Transaction
from fitroom.backends.tensorflow.train.transfer import Transfer
from fitroom.backends.tensorflow.train.trial import may_run_out, run_undone
from fitroom.batch import Batch, StepName
from fitroom.keras_model.build import build
from fitroom.keras_model.jit_choice import TrainingSetup
from fitroom.keras_model.losses import is_from_keras
from fitroom.keras_model.objective import Objective
from fitroom.keras_model.outputs import join, join_micro_batches
from fitroom.recipe import Remat

SMALL_BYTES = 16 * 2**20
"""Up to this size Keras's own step is run, in which old weights are held beside activations."""

_TRAINING = ("train_step", "gradients", "add_micro_batch")
"""Functions that run the model in training."""


class TensorFlowStepper:
    """Steps of one compiled model.

    When a step returns, all its work is on the card's queue. TensorFlow takes memory when it puts work there, so that
    nothing can run out of memory later.
    """

    batches_ahead = 2
    """On the host. On the card is at most the next micro-batch, which `transfer.py` copies while one is computed."""

    def __init__(
        self, model: Any, *, jit: bool | None, remat: str | Remat | None = None, kernels: str | None = None
    ) -> None:
        self.model = model
        self._computation = Computation(model, remat=remat, kernels=kernels)
        self.objective = Objective(model)
        self._functions = StepFunctions(model, self.objective)
        self._jit = jit
        self._programs: dict[tuple[str, bool], Program] = {}
        self._most_samples = 0
        """The largest micro-batch in training so far: programs may be for any size."""
        self._most_tried = 0
        """The largest micro-batch that went well in graph mode, before it was jitted."""
        self._trusted = 0
        self._made_with: TrainingSetup | None = None
        self._can_train = False
        """Whether the variables that training needs are there."""
        self._transfer = Transfer()
        self._changed_bytes = 0
        self._updates_in_place = False

    def why_whole(self, step: StepName = "train_step") -> str | None:
        """Why this step needs whole batches, or None where nothing is known against micro-batches."""
        return self.objective.why_whole(step)

    @property
    def holds(self) -> bool:
        """Whether it has programs, and they are still right for the model."""
        if self.model.distribute_strategy.num_replicas_in_sync > 1:
            return False
        return self._made_with is not None and self._made_with.matches(self.model)

    def samples_per_device(self, batch_size: int) -> int:
        """All of them: one device trains."""
        return batch_size

    def trust(self, samples: int) -> None:
        """Until memory runs out, so many are not tried in graph mode: in mixed precision that may take more."""
        self._trusted = samples

    def prepare(self, batch: Batch) -> None:
        """Make weights, variables of the optimizer and of metrics, as Keras does with its first batch."""
        if self._can_train:
            return
        if self._is_from_keras("train_step") and is_of_arrays(batch):
            build(self.model, batch)
        else:
            self._most_samples = batch.size
            self._program("train_step").changed(as_tensors(batch).data())
        changed = [*self.model.trainable_variables, *self.model.optimizer.variables]
        self._changed_bytes = sum(each.value.shape.num_elements() * each.value.dtype.size for each in changed)
        self._transfer.set_device(self._card(), is_jitted=self._is_jitted)
        self._made_with = TrainingSetup(self.model)
        self._can_train = True

    def _prepare_test(self, batch: Batch) -> None:
        """Make weights and variables of metrics. Keras, too, makes none of the optimizer's to evaluate."""
        if self._made_with is None:
            self._program("test_step").changed(as_tensors(batch).data())
            self._made_with = TrainingSetup(self.model)

    def train(self, batch: Batch, micro_batch: int) -> dict[str, Any]:
        """One update."""
        self.prepare(batch)
        self._most_samples = max(self._most_samples, min(micro_batch, batch.size))
        self._try_in_graph(batch, min(micro_batch, batch.size))
        with Transaction() as transaction:
            if micro_batch < batch.size:
                return self._train_in_micro_batches(transaction, batch, micro_batch)
            data = next(self._transfer.prefetch(batch, [batch], micro_batch)).data()
            if not self._is_from_keras("train_step"):
                return dict(self._update(transaction, "train_step", data))
            if self._changed_bytes <= SMALL_BYTES:
                return dict(transaction.run(self._program("train_step"), data))
            gradients, logs = transaction.run(self._program("gradients"), data)
            self._update(transaction, "update", gradients)
            return dict(logs)

    def test(self, batch: Batch, micro_batch: int) -> dict[str, Any]:
        """One batch of `evaluate`."""
        self._prepare_test(batch)
        self._transfer.queue.next_after(batch)
        with Transaction() as transaction:
            if micro_batch >= batch.size:
                return dict(transaction.run(self._program("test_step"), as_tensors(batch).data()))
            pieces = self._split(batch, micro_batch, "test_step")
            losses: Any = np.zeros(1 + self.objective.num_losses, "float32")
            for piece, shares in zip(pieces, self._shares(transaction, pieces), strict=True):
                program = self._program("test_micro_batch")
                losses = transaction.run(program, as_tensors(piece).unpacked(), *shares, losses)
            return dict(transaction.run(self._program("report"), losses, np.int32(batch.size)))

    def predict(self, x: Any) -> Any:
        """The model's outputs for some inputs."""
        with Transaction() as transaction:
            outputs = transaction.run(self._program("predict_step"), as_tensors(Batch(x=x)).data())
        return keras.tree.map_structure(keras.ops.convert_to_numpy, outputs)

    def predict_batch(self, batch: Batch, micro_batch: int) -> Any:
        """One batch of `predict`."""
        self._transfer.queue.next_after(batch)
        pieces, found = split_batch(batch, micro_batch), []
        with Transaction() as transaction:
            for piece in pieces:
                outputs = transaction.run(self._program("predict_step"), as_tensors(piece).data())
                found.append(keras.tree.map_structure(on_host, outputs))
        if self._made_with is None:
            self._made_with = TrainingSetup(self.model)
        return join_micro_batches(found, [piece.size for piece in pieces], concatenate)

    def join(self, outputs: Sequence[Any]) -> Any:
        """The outputs of several batches of `predict`."""
        return join(outputs, concatenate)

    def prefetch(self, batch: Batch) -> Batch:
        """The batch where its micro-batches are transferred from, one by one."""
        return self._transfer.expect(batch)

    def pause(self) -> None:
        """Give back what was transferred to the card for a batch that does not come."""
        self._transfer.end()

    def forget(self) -> None:
        """Drop compiled programs. Gradients live between them only, while a step runs."""
        self._programs.clear()
        self._transfer.drop()
        self._trusted = 0
        self._most_samples = 0
        self._updates_in_place = False

    def _try_in_graph(self, batch: Batch, samples: int) -> None:
        """Have a step that is too large run out of memory here, where it does no harm, rather than jitted."""
        most = max(self._most_tried, self._trusted)
        if not self._is_jitted or samples <= most or not self._is_from_keras("train_step"):
            return
        if may_run_out(self.model, samples):
            first = as_tensors(first_micro_batch(batch, samples))
            with run_undone() as transaction:
                beside = self._transfer.beside(first)
                transaction.run(self._program("gradients", may_jit=False), first.unpacked())
                del beside
            del self._programs["gradients", False]
            release()  # what the graph keeps would lie where XLA wants all its memory in one piece
        self._most_tried = samples

    def _train_in_micro_batches(self, transaction: Transaction, batch: Batch, micro_batch: int) -> dict[str, Any]:
        pieces = self._split(batch, micro_batch, "train_step")
        number = self._transfer.number
        sums = transaction.run(self._program("nothing_yet", may_jit=False), number(np.float32(0)))
        ready = self._transfer.prefetch(batch, pieces, micro_batch)
        for shares in self._shares(transaction, pieces):
            program = self._program("add_micro_batch")
            sums = transaction.run(program, next(ready).unpacked(), *map(number, shares), sums)
        return dict(self._update(transaction, "finish", sums, number(np.int32(batch.size))))

    def _update(self, transaction: Transaction, name: str, *arguments: Any) -> Any:
        """Run what changes the weights. Without memory for old ones beside new ones the host holds the old."""
        if not self._updates_in_place:
            try:
                return transaction.run(self._program(name), *arguments)
            except tf.errors.ResourceExhaustedError:
                self._updates_in_place = True
        return transaction.run_in_place(self._program(name, may_jit=False), *arguments)

    def _split(self, batch: Batch, micro_batch: int, step: StepName) -> list[Batch]:
        self.objective.check_can_cut(step)
        self.objective.try_losses(batch, self.predict)
        return split_batch(batch, micro_batch)

    def _shares(self, transaction: Transaction, micro_batches: Sequence[Batch]) -> Iterator[tuple[Any, Any]]:
        """The share of each micro-batch in the losses, and in the samples."""
        divisors = None
        if self.objective.counts:
            counting = self._program("divisors")
            divisors = [
                transaction.run(counting, as_tensors(each).unpacked()).numpy().tolist() for each in micro_batches
            ]
        num_samples = sum(each.size for each in micro_batches)
        for each, shares in zip(micro_batches, self.objective.shares(micro_batches, divisors), strict=True):
            yield shares, np.float32(each.size / num_samples)

    def _program(self, name: str, *, may_jit: bool = True) -> Program:
        key = (name, may_jit)
        if key not in self._programs:
            eager = self._jit is None and self.model.run_eagerly
            self._programs[key] = Program(
                self._function(name), self._all_variables, jit=self._is_jitted and may_jit, eager=eager
            )
        return self._programs[key]

    def _card(self) -> str | None:
        """Where programs run, unless that is the host itself."""
        devices = {str(weight.value.device) for weight in self.model.trainable_variables}
        [device] = devices if len(devices) == 1 else {HOST}
        return None if device.endswith(HOST) else device

    @property
    def _is_jitted(self) -> bool:
        return bool(self.model.jit_compile if self._jit is None else self._jit)

    def _function(self, name: str) -> Callable[..., Any]:
        function: Callable[..., Any] = getattr(self.model if name.endswith("_step") else self._functions, name)
        return self._computation.of_step(function, self._most_samples) if name in _TRAINING else function

    def _all_variables(self) -> list[Any]:
        optimizer = getattr(self.model, "optimizer", None)
        slots = [] if optimizer is None else optimizer.variables
        return [*self.model.variables, *slots, *self.model.metrics_variables]

    def _is_from_keras(self, method: str) -> bool:
        return is_from_keras(getattr(type(self.model), method))


_CACHE_NAME = "_fitroom_steppers"


def cached_stepper(
    model: Any, *, jit: bool | None, remat: str | Remat | None, kernels: str | None
) -> "TensorFlowStepper | MirroredStepper":
    """The stepper of an earlier training with the same settings, if its programs still fit the model; else a new one.

    Compiling the programs of a stepper takes a minute where XLA does it.
    """
    # The cache is with the model, which steppers refer to: a table elsewhere would keep both for good. It is set past
    # Keras, which tracks all that is set on a model.
    cached: dict[Any, TensorFlowStepper | MirroredStepper] = model.__dict__.setdefault(_CACHE_NAME, {})
    for asked in [asked for asked, stepper in cached.items() if not stepper.holds]:
        del cached[asked]
    key = (jit, remat, kernels)
    if key not in cached:
        is_mirrored = model.distribute_strategy.num_replicas_in_sync > 1
        kind = MirroredStepper if is_mirrored else TensorFlowStepper
        cached[key] = kind(model, jit=jit, remat=remat, kernels=kernels)
    cached[key].trust(0)
    return cached[key]
