"""A step in micro-batches: gradients add up where PyTorch keeps them, losses and statistics are added up here."""

import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import keras
import torch

from fitroom.backends.torch.train.snapshot import Snapshot
from fitroom.backends.torch.train.statistics import AveragedStatistics
from fitroom.batch import Batch
from fitroom.keras_model.objective import Objective

_YOUNG = 1
"""The generations of objects to look through: a millisecond. What a micro-batch has made is no older."""


@dataclass(frozen=True, kw_only=True)
class LocalSums:
    """What micro-batches added up to; the gradients are with their weights."""

    losses: Any
    """The loss of the batch, then each of its losses: a vector."""

    statistics: AveragedStatistics
    logs: dict[str, Any]
    """Those of the last micro-batch, for their names."""


class MicroBatchRunner:
    """Runs the micro-batches of one model. `put` transfers one to the device."""

    def __init__(self, model: Any, objective: Objective, put: Callable[[Batch], Batch]) -> None:
        self._model, self._objective, self._put = model, objective, put

    def run(self, micro_batches: Sequence[Batch], before: Snapshot, *, training: bool) -> dict[str, Any]:
        """Run all micro-batches of a batch, each from the statistics in `before`, and return the logs of the batch."""
        num_samples = sum(micro_batch.size for micro_batch in micro_batches)
        shares = self._objective.shares(micro_batches, self.divisors(micro_batches) if self._objective.counts else None)
        sums = self.add_up(micro_batches, shares, before, num_samples, training=training)
        sums.statistics.finish()
        self._objective.track(sums.losses[0], list(sums.losses[1:]), num_samples)
        new = self._model.get_metrics_result()
        return {name: new.get(name, value) for name, value in sums.logs.items()}

    def add_up(
        self, micro_batches: Sequence[Batch], shares: Any, before: Snapshot, num_samples: int, *, training: bool
    ) -> "LocalSums":
        """Add up gradients, losses and statistics of some micro-batches of a batch of `num_samples`."""
        differentiated = training and bool(self._model.trainable_weights)
        statistics = AveragedStatistics(before)
        losses: Any = None
        logs: dict[str, Any] = {}
        for micro_batch, row in zip(micro_batches, shares.tolist(), strict=True):
            statistics.begin_micro_batch()
            share = micro_batch.size / num_samples
            added, of_losses, logs = self._run_one(
                micro_batch, row, share, training=training, differentiated=differentiated
            )
            statistics.end_micro_batch(share)
            # Keras's structures of tensors refer to themselves: what they hold of this one is in the next one's way.
            gc.collect(_YOUNG)
            found = torch.stack([added, *of_losses])
            losses = found if losses is None else losses + found
        if losses is None:  # a process without a share
            losses = torch.zeros(1 + self._objective.num_losses, device=keras.ops.empty(()).device)
        return LocalSums(losses=losses, statistics=statistics, logs=logs)

    def _run_one(
        self, micro_batch: Batch, shares: Sequence[float], share: float, *, training: bool, differentiated: bool
    ) -> tuple[Any, list[Any], dict[str, Any]]:
        """One micro-batch. All that it holds on the device ends with this call, except for the gradients."""
        model, on_device = self._model, self._put(micro_batch)
        y_pred = self._call(on_device.x, training=training)
        total, values = self._objective.loss(on_device.y, y_pred, on_device.sample_weight, model.losses, shares, share)
        if differentiated:
            model.optimizer.scale_loss(total).backward()
        logs = model.compute_metrics(on_device.x, on_device.y, y_pred, on_device.sample_weight)
        return total.detach(), [value.detach() for value in values], logs

    def divisors(self, micro_batches: Sequence[Batch]) -> list[list[float]]:
        """What the losses divide each micro-batch by, found in a forward pass of its own."""
        with torch.no_grad():
            return [self._divisors_of(micro_batch).tolist() for micro_batch in micro_batches]

    def _divisors_of(self, micro_batch: Batch) -> Any:
        on_device = self._put(micro_batch)
        return self._objective.divisors(on_device.y, self._call(on_device.x, training=False), on_device.sample_weight)

    def _call(self, x: Any, *, training: bool) -> Any:
        return self._model(x, training=training) if self._model._call_has_training_arg else self._model(x)
