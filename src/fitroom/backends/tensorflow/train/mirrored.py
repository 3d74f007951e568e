"""Training steps under a `tf.distribute` strategy: replicas add up their gradients, and the update reduces them once.

The gradients of a micro-batch are a program of their own, in which the replicas do not talk to each other. So a replica
that runs out of memory does so before any reduction: the step is rolled back on all of them.
"""

from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from fitroom.backends.prefetch import PrefetchQueue
from fitroom.backends.tensorflow.train.computation import Computation
from fitroom.backends.tensorflow.train.host import as_tensors, concatenate, on_host, split_batch
from fitroom.backends.tensorflow.train.micro_batches import StepFunctions
from fitroom.backends.tensorflow.train.programs import Program
from fitroom.backends.tensorflow.train.replicas import Replicas, largest_micro_batch
from fitroom.backends.tensorflow.train.rollback import Transaction
from fitroom.backends.tensorflow.train.statistics import StatisticsChange
from fitroom.batch import Batch, StepName
from fitroom.errors import ModelError
from fitroom.keras_model.build import build
from fitroom.keras_model.jit_choice import TrainingSetup
from fitroom.keras_model.objective import Objective
from fitroom.keras_model.outputs import join, join_micro_batches
from fitroom.keras_model.private import all_layers, unscaled_losses
from fitroom.recipe import Remat


class ReplicaFunctions(StepFunctions):
    """What every replica does in a step. A replica that has no sample of a micro-batch leaves it out."""

    def add_micro_batch(self, data: Any, shares: Any, sample_share: Any, sums: dict[str, Any]) -> dict[str, Any]:
        """The sums with this replica's part of a micro-batch added."""
        if _is_empty(data):
            return sums
        with unscaled_losses():
            return super().add_micro_batch(data, shares, sample_share, sums)

    def test_micro_batch(self, data: Any, shares: Any, sample_share: Any, losses: Any) -> Any:
        """The losses with this replica's part of a micro-batch of `evaluate` added."""
        if _is_empty(data):
            return losses
        with unscaled_losses():
            return super().test_micro_batch(data, shares, sample_share, losses)

    def divisors(self, data: Any) -> Any:
        """What the losses divide this replica's part of a micro-batch by."""
        return tf.zeros((self.objective.num_losses,)) if _is_empty(data) else super().divisors(data)

    def finish(self, sums: dict[str, Any], num_samples: Any) -> dict[str, Any]:
        """The update: the optimizer reduces the gradients of all replicas. `num_samples` is this replica's."""
        unused = self._is_unused or [False] * len(sums["gradients"])
        self.update([None if skip else each for each, skip in zip(sums["gradients"], unused, strict=True)])
        StatisticsChange(self.model).apply([_reduced(each) for each in sums["statistics"]])
        self.track(sums["losses"], num_samples)
        return {}  # metrics are read outside of the replicas

    def track(self, losses: Any, num_samples: Any) -> None:
        """Update the loss trackers with the loss of the whole batch, each replica by its own samples."""
        total = _reduced(losses)
        self.objective.track(total[0], tf.unstack(total[1:]), num_samples)


class MirroredStepper:
    """Steps of one compiled model on the replicas of its strategy."""

    batches_ahead = 2
    """On the host. On the cards there is none ahead of its step."""

    def __init__(
        self, model: Any, *, jit: bool | None, remat: str | Remat | None = None, kernels: str | None = None
    ) -> None:
        self.model = model
        self.replicas = Replicas(model.distribute_strategy)
        self.objective = Objective(model)
        self.note = (
            "Steps are not jitted: TensorFlow compiles no step that runs on several devices."
            if (model.jit_compile if jit is None else jit)
            else None
        )
        self._computation = Computation(model, remat=remat, kernels=kernels)
        self._functions = ReplicaFunctions(model, self.objective)
        self._programs: dict[str, Program] = {}
        self._queue = PrefetchQueue()
        self._most_samples = 0
        self._made_with: TrainingSetup | None = None

    def why_whole(self, step: StepName = "train_step") -> str | None:
        """Why this step needs each share whole, or None where nothing is known against micro-batches."""
        return self.objective.why_whole(step)

    @property
    def holds(self) -> bool:
        """Whether it has programs, and they are still right for the model."""
        is_same = self.model.distribute_strategy is self.replicas.strategy
        return is_same and self._made_with is not None and self._made_with.matches(self.model)

    def samples_per_device(self, batch_size: int) -> int:
        """The largest share of a batch."""
        return self.replicas.largest_share(batch_size)

    def trust(self, samples: int) -> None:
        """Nothing to skip: no step is jitted."""

    def prepare(self, batch: Batch) -> None:
        """Make weights, variables of the optimizer and of metrics on every replica."""
        if self._made_with is None:
            with self.replicas.strategy.scope():
                build(self.model, batch)
            self._made_with = TrainingSetup(self.model)

    def train(self, batch: Batch, micro_batch: int) -> dict[str, Any]:
        """One update."""
        self.prepare(batch)
        self._queue.next_after(batch)
        if self.why_whole("train_step") is not None:
            return self._run_own("train_step", batch)
        parts = self._split(batch, micro_batch, "train_step")
        self._most_samples = max(self._most_samples, max(map(largest_micro_batch, parts)))
        with Transaction() as transaction:
            sums = transaction.run(self._program("nothing_yet"), np.float32(0))
            for part, shares, share in self._shares(transaction, parts):
                sums = transaction.run(self._program("add_micro_batch"), self.replicas.data(part), shares, share, sums)
            return dict(transaction.run(self._program("finish"), sums, self._own_samples(parts)))

    def test(self, batch: Batch, micro_batch: int) -> dict[str, Any]:
        """One batch of `evaluate`."""
        self.prepare(batch)
        self._queue.next_after(batch)
        if self.why_whole("test_step") is not None:
            return self._run_own("test_step", batch)
        parts = self._split(batch, micro_batch, "test_step")
        with Transaction() as transaction:
            losses = self.replicas.values([np.zeros(1 + self.objective.num_losses, "float32")] * self.replicas.count)
            for part, shares, share in self._shares(transaction, parts):
                data = self.replicas.data(part)
                losses = transaction.run(self._program("test_micro_batch"), data, shares, share, losses)
            return dict(transaction.run(self._program("track"), losses, self._own_samples(parts)))

    def predict(self, x: Any) -> Any:
        """The model's outputs for some inputs."""
        return self.predict_batch(Batch(x=x), Batch(x=x).size)

    def predict_batch(self, batch: Batch, micro_batch: int) -> Any:
        """One batch of `predict`, on the first replica."""
        self._queue.next_after(batch)
        pieces, found = split_batch(batch, micro_batch), []
        with Transaction() as transaction:
            for piece in pieces:
                outputs = transaction.run(self._program("predict_step"), as_tensors(piece).data())
                found.append(keras.tree.map_structure(on_host, outputs))
        return join_micro_batches(found, [piece.size for piece in pieces], concatenate)

    def join(self, outputs: Sequence[Any]) -> Any:
        """The outputs of several batches of `predict`."""
        return join(outputs, concatenate)

    def prefetch(self, batch: Batch) -> Batch:
        """The batch as it is: every replica takes its own part of it."""
        self._queue.add(batch)
        return batch

    def pause(self) -> None:
        """Forget which batches were to come."""
        self._queue.clear()

    def forget(self) -> None:
        """Drop compiled programs. Gradients live between them only, while a step runs."""
        self._programs.clear()
        self._most_samples = 0

    def _split(self, batch: Batch, micro_batch: int, step: StepName) -> list[list[Batch]]:
        self.objective.try_losses(batch, self.predict)
        parts = self.replicas.split(batch, micro_batch)
        is_synchronized = any(getattr(layer, "synchronized", False) for layer in all_layers(self.model))
        if step == "train_step" and is_synchronized and any(each.size == 0 for part in parts for each in part):
            raise ModelError(
                f"A batch of {batch.size} leaves one of {self.replicas.count} replicas without a sample, and "
                "BatchNormalization with synchronized=True needs all of them.",
                hint="a batch_size that divides the data, or drop the last batch",
            )
        return parts

    def _shares(self, transaction: Transaction, parts: Sequence[Sequence[Batch]]) -> Any:
        """For each micro-batch: its parts, and each part's share in the losses and in the samples."""
        filled = [each for part in parts for each in part if each.size]
        divisors = None
        if self.objective.counts:
            divisors = []
            for part in parts:
                found = self.replicas.join(transaction.run(self._program("divisors"), self.replicas.data(part)))
                divisors += [row.numpy().tolist() for row, each in zip(found, part, strict=True) if each.size]
        rows = iter(self.objective.shares(filled, divisors))
        num_samples = sum(each.size for each in filled)
        none: Any = np.zeros(self.objective.num_losses, "float32")
        for part in parts:
            shares = [next(rows) if each.size else none for each in part]
            samples = [np.float32(each.size / num_samples) for each in part]
            yield part, self.replicas.values(shares), self.replicas.values(samples)

    def _own_samples(self, parts: Sequence[Sequence[Batch]]) -> Any:
        sizes = [sum(each.size for each in own) for own in zip(*parts, strict=True)]
        return self.replicas.values([np.int32(size) for size in sizes])

    def _run_own(self, name: StepName, batch: Batch) -> dict[str, Any]:
        """A step of the user's own, as Keras runs it: every replica on its share, logs averaged."""
        [part] = self.replicas.split(batch, self.samples_per_device(batch.size))
        if any(each.size == 0 for each in part):
            raise ModelError(
                f"A batch of {batch.size} leaves one of {self.replicas.count} replicas without a sample, and the "
                f"model's own `{name}` runs on all of them.",
                hint="a batch_size that divides the data, or drop the last batch",
            )
        with Transaction() as transaction:
            return dict(transaction.run(self._program(name), self.replicas.data(part, packed=True)))

    def _program(self, name: str) -> Program:
        if name not in self._programs:
            self._programs[name] = Program(
                self._function(name),
                self._all_variables,
                jit=False,
                eager=bool(self.model.run_eagerly),
                sizes_apart=None,
            )
        return self._programs[name]

    def _function(self, name: str) -> Callable[..., Any]:
        run, functions = self.replicas.run, self._functions
        if name == "predict_step":
            return self.model.predict_step  # type: ignore[no-any-return]
        if name in ("train_step", "test_step"):
            return self._average_logs(run(self._segmented(getattr(self.model, name), name)))
        if name in ("finish", "track"):
            return self._report(run(getattr(functions, name)))
        return run(self._segmented(getattr(functions, name), name))

    def _segmented(self, function: Callable[..., Any], name: str) -> Callable[..., Any]:
        is_training = name in ("train_step", "add_micro_batch")
        return self._computation.of_step(function, self._most_samples) if is_training else function

    def _report(self, run: Callable[..., Any]) -> Callable[..., Any]:
        """The logs after a step on all replicas: outside of them a metric is read as the sum over all."""

        def run_and_report(*arguments: Any) -> dict[str, Any]:
            run(*arguments)
            return dict(self.model.get_metrics_result())

        return run_and_report

    def _average_logs(self, run: Callable[..., Any]) -> Callable[..., Any]:
        strategy = self.replicas.strategy

        def run_and_average(data: Any) -> dict[str, Any]:
            logs, mean = run(data), tf.distribute.ReduceOp.MEAN
            return {name: strategy.reduce(mean, value, axis=None) for name, value in logs.items()}

        return run_and_average

    def _all_variables(self) -> list[Any]:
        optimizer = getattr(self.model, "optimizer", None)
        slots = [] if optimizer is None else optimizer.variables
        return [*self.model.variables, *slots, *self.model.metrics_variables]


def _is_empty(data: Any) -> bool:
    return bool(keras.tree.flatten(data)[0].shape[0] == 0)


def _reduced(value: Any) -> Any:
    """The sum over all replicas; of whole numbers, which count something, what this replica has."""
    if not value.dtype.is_floating:
        return value
    return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, value)
