"""One step of several processes: each its share of the batch, then one reduction, then the same update everywhere."""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from fitroom.backends.torch.out_of_memory import is_out_of_memory
from fitroom.backends.torch.train.micro_batches import LocalSums, MicroBatchRunner
from fitroom.backends.torch.train.processes import Processes
from fitroom.backends.torch.train.reduction import GradientReduction
from fitroom.backends.torch.train.snapshot import Snapshot
from fitroom.batch import Batch
from fitroom.keras_model.objective import Objective

_MIX = 0x9E3779B1


class SharedStep:
    """The part of this process in the steps of one model."""

    def __init__(
        self, model: Any, objective: Objective, runner: MicroBatchRunner, processes: Processes, seeds: Sequence[Any]
    ) -> None:
        self._model, self._objective, self._runner, self._processes = model, objective, runner, processes
        self._seeds = seeds
        self._reduction: GradientReduction | None = None
        optimizer = getattr(model, "optimizer", None)
        variables = [*model.variables, *model.metrics_variables, *(optimizer.variables if optimizer else ())]
        processes.copy_from_first([variable._value.detach() for variable in variables])

    def prepare(self) -> None:
        """Make what reduces the gradients. That writes to the weights, so that it comes before a step that may fail."""
        weights = self._weights()
        if weights and (self._reduction is None or not self._reduction.is_for(weights)):
            self._reduction = GradientReduction(weights)

    def run(
        self, batch: Batch, micro_batch: int, before: Snapshot, update: Callable[[], None] | None
    ) -> dict[str, Any]:
        """Go over this process's share, agree with the others, reduce, and update. None trains nothing."""
        processes, training = self._processes, update is not None
        by_process = processes.micro_batches(batch, micro_batch)
        metrics = Snapshot([variable._value for variable in self._model.metrics_variables])
        with processes.agree(is_out_of_memory):
            own = by_process[processes.rank]
            divisors = self._runner.divisors(own) if self._objective.counts else None
        shares = self._shares(by_process, divisors)
        with processes.agree(is_out_of_memory):
            self._draw_own_numbers()
            sums = self._runner.add_up(own, shares, before, batch.size, training=training)
            self._draw_own_numbers()
        is_used = self._reduce(sums, metrics, training=training)
        before.restore()
        sums.statistics.finish()
        self._objective.track(sums.losses[0], list(sums.losses[1:]), batch.size)
        if update is not None:
            with processes.agree(is_out_of_memory):
                self._drop_unused(is_used)
                update()
        return dict(self._model.get_metrics_result())

    def _shares(self, by_process: Sequence[Sequence[Batch]], divisors: Any) -> Any:
        """The rows of `Objective.shares` for this process's micro-batches."""
        rows = None
        if divisors is not None:
            rows = [row for of_process in self._processes.gather_rows(divisors) for row in of_process]
        shares = self._objective.shares([each for parts in by_process for each in parts], rows)
        start = sum(map(len, by_process[: self._processes.rank]))
        return shares[start : start + len(by_process[self._processes.rank])]

    def _reduce(self, sums: LocalSums, metrics: Snapshot, *, training: bool) -> Any:
        """Reduce gradients, losses, statistics and metrics. Returns which weights have a gradient in any process."""
        weights = self._weights() if training else []
        is_used = torch.tensor([float(weight.grad is not None) for weight in weights], device=sums.losses.device)
        if weights and self._reduction is not None:
            self._reduction.run()
        added = [tensor - before for tensor, before in zip(metrics.tensors, metrics.copies, strict=True)]
        self._processes.sum([is_used, sums.losses, *sums.statistics.changes, *added])
        metrics.restore()
        for tensor, change in zip(metrics.tensors, added, strict=True):
            tensor.add_(change)
        return is_used

    def _weights(self) -> list[Any]:
        return [weight._value for weight in self._model.trainable_weights]

    def _drop_unused(self, is_used: Any) -> None:
        for weight, used in zip(self._model.trainable_weights, is_used.tolist(), strict=True):
            if not used:
                weight._value.grad = None

    def _draw_own_numbers(self) -> None:
        """Mix the process's number into the random states, so that no two draw the same; again: as they were."""
        for seed in self._seeds:
            seed[0] = int(seed[0]) ^ (self._processes.rank * _MIX % 2**31)
