"""A batch run part by part: the gradients add up where PyTorch keeps them, the rest is added up here."""

import gc
from collections.abc import Callable, Sequence
from typing import Any

import torch

from fitroom.backends.torch.train.snapshot import Snapshot
from fitroom.backends.torch.train.statistics import Moved
from fitroom.batch import Batch
from fitroom.keras_model.objective import Objective

_YOUNG = 1
"""The generations of objects to look through: a millisecond. What a part has made has not grown older."""


class Parts:
    """Runs the parts of batches of one model. `put` brings a part to the device."""

    def __init__(self, model: Any, objective: Objective, put: Callable[[Batch], Batch]) -> None:
        self._model, self._objective, self._put = model, objective, put

    def run(self, parts: Sequence[Batch], before: Snapshot, *, training: bool) -> dict[str, Any]:
        """The logs of the whole batch; `before` has the statistics that every part starts from."""
        num_samples = sum(part.size for part in parts)
        shares = self._objective.shares(parts, self._divisors(parts) if self._objective.counts else None)
        differentiated = training and bool(self._model.trainable_weights)
        moved = Moved(before)
        total: Any = 0.0
        values: list[Any] = []
        logs: dict[str, Any] = {}
        for part, row in zip(parts, shares.tolist(), strict=True):
            moved.begin_part()
            share = part.size / num_samples
            added, of_losses, logs = self._run_one(part, row, share, training=training, differentiated=differentiated)
            moved.end_part(share)
            # Keras's structures of tensors refer to themselves: what they hold of this part is in the next one's way.
            gc.collect(_YOUNG)
            total = total + added
            values = [sum(pair) for pair in zip(values, of_losses, strict=True)] if values else of_losses
        moved.finish()
        self._objective.track(total, values, num_samples)
        new = self._model.get_metrics_result()
        return {name: new.get(name, value) for name, value in logs.items()}

    def _run_one(
        self, part: Batch, shares: Sequence[float], share: float, *, training: bool, differentiated: bool
    ) -> tuple[Any, list[Any], dict[str, Any]]:
        """One part. All that it holds on the device ends with this call, except for the gradients."""
        model, there = self._model, self._put(part)
        y_pred = self._call(there.x, training=training)
        total, values = self._objective.loss(there.y, y_pred, there.sample_weight, model.losses, shares, share)
        if differentiated:
            model.optimizer.scale_loss(total).backward()
        logs = model.compute_metrics(there.x, there.y, y_pred, there.sample_weight)
        return total.detach(), [value.detach() for value in values], logs

    def _divisors(self, parts: Sequence[Batch]) -> list[list[float]]:
        """What the losses divide each part by, found in a forward pass of its own."""
        with torch.no_grad():
            return [self._divisors_of(part).tolist() for part in parts]

    def _divisors_of(self, part: Batch) -> Any:
        there = self._put(part)
        return self._objective.divisors(there.y, self._call(there.x, training=False), there.sample_weight)

    def _call(self, x: Any, *, training: bool) -> Any:
        return self._model(x, training=training) if self._model._call_has_training_arg else self._model(x)
