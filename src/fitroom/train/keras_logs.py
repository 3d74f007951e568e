"""Keras's logs of batches and epochs: as Python numbers, and watched for a loss that is not finite."""

import math
import time
from typing import Any

from fitroom.backends.contract import Backend
from fitroom.events import EventKind, Events

_SECONDS_BETWEEN_CHECKS = 0.5
"""On a card, reading a number may wait for all queued work, so it is not read after every batch."""


class LossWatch:
    """Checks now and then whether the loss of an epoch is finite; on the CPU, where that is free, after every batch.

    On a card it checks the loss of the batch before: the last one is still being computed there.
    """

    def __init__(self, events: Events, backend: Backend) -> None:
        self.events = events
        self.every_batch = backend.devices()[0].kind == "cpu"
        self._last_check = time.monotonic()
        self._last_finite: int | None = None
        self._before: tuple[Any, int] | None = None
        """The loss of the batch before, and its number."""
        self._has_told = False

    def check(self, logs: dict[str, Any], epoch: int, batch: int | None) -> None:
        """Check the logs after a batch, or at the end of the epoch (`batch` None)."""
        if self._has_told or "loss" not in logs:
            return
        if batch is None or self.every_batch:
            self._check(logs["loss"], epoch, batch)
        elif self._before is not None and time.monotonic() - self._last_check > _SECONDS_BETWEEN_CHECKS:
            self._check(self._before[0], epoch, self._before[1])
        if batch is not None:
            self._before = (logs["loss"], batch)

    def _check(self, loss: Any, epoch: int, batch: int | None) -> None:
        if math.isfinite(float(loss)):
            self._last_check, self._last_finite = time.monotonic(), batch
            return
        self._has_told = True
        where = f"batch {batch + 1}" if batch is not None else "its last batches"
        since = f" (after batch {self._last_finite + 1} it was still finite)" if self._last_finite is not None else ""
        self.events.tell(
            EventKind.LOSS_NOT_FINITE,
            f"the loss is {float(loss)} at {where} of epoch {epoch + 1}{since}: a smaller learning rate, "
            "clipping (clipnorm) or other targets may help; training continues.",
            epoch=epoch,
            batch=batch,
        )


def epoch_logs(model: Any, logs: dict[str, Any]) -> dict[str, Any]:
    """The logs of an epoch: the results of the metrics, unless the model's own step gave other names."""
    return dict(model._get_metrics_result_or_logs(logs)) if logs else {}


def as_floats(logs: dict[str, Any]) -> dict[str, Any]:
    """Logs with the framework's numbers as Python floats; dicts that a metric gave are merged in.

    Reading a number may wait for the device.
    """
    found: dict[str, Any] = {}
    for name, value in logs.items():
        if isinstance(value, dict):
            found |= as_floats(value)
        else:
            try:
                found[name] = float(value)
            except (TypeError, ValueError):
                found[name] = value
    return found
