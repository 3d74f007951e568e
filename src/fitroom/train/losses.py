"""A loss that is no number any more is said at once, with the batch where it was seen."""

import math
import time
from typing import Any

from fitroom.backends.contract import Backend
from fitroom.events import Events

_SECONDS_BETWEEN_LOOKS = 0.5
"""On a card, reading a number may wait for all the work that is queued: not after every batch."""


class LossWatch:
    """Looks at the loss of one epoch now and then; on the CPU, where it costs nothing, after every batch.

    On a card it looks at the loss of the batch before: the one after which it is asked is still being computed there.
    """

    def __init__(self, events: Events, backend: Backend) -> None:
        self.events = events
        self.every_batch = backend.devices()[0].kind == "cpu"
        self._last_look = time.monotonic()
        self._last_finite: int | None = None
        self._before: tuple[Any, int] | None = None
        """The loss of the batch before, and its number."""
        self._said = False

    def look(self, logs: dict[str, Any], epoch: int, batch: int | None) -> None:
        """After a batch, or at the end of the epoch (`batch` None)."""
        if self._said or "loss" not in logs:
            return
        if batch is None or self.every_batch:
            self._check(logs["loss"], epoch, batch)
        elif self._before is not None and time.monotonic() - self._last_look > _SECONDS_BETWEEN_LOOKS:
            self._check(self._before[0], epoch, self._before[1])
        if batch is not None:
            self._before = (logs["loss"], batch)

    def _check(self, loss: Any, epoch: int, batch: int | None) -> None:
        if math.isfinite(float(loss)):
            self._last_look, self._last_finite = time.monotonic(), batch
            return
        self._said = True
        where = f"batch {batch + 1}" if batch is not None else "its last batches"
        since = f" (after batch {self._last_finite + 1} it was still finite)" if self._last_finite is not None else ""
        self.events.tell(
            "loss not finite",
            f"the loss is {float(loss)} at {where} of epoch {epoch + 1}{since}: a smaller learning rate, "
            "clipping (clipnorm) or other targets may help; training goes on.",
            epoch=epoch,
            batch=batch,
        )
