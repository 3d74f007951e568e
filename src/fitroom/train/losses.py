"""A loss that is no number any more is said at once, with the batch where it was seen."""

import math
import time
from typing import Any

from fitroom.backends.contract import Backend
from fitroom.train.events import Events

_SECONDS_BETWEEN_LOOKS = 0.5
"""On a card, reading a number waits for all the work that is queued: not after every batch."""


class LossWatch:
    """Looks at the loss of one epoch now and then; on the CPU, where it costs nothing, after every batch."""

    def __init__(self, events: Events, backend: Backend) -> None:
        self.events = events
        self.every_batch = backend.devices()[0].kind == "cpu"
        self.last_look = time.monotonic()
        self.last_batch: int | None = None
        self.said = False

    def look(self, logs: dict[str, Any], epoch: int, batch: int | None) -> None:
        """After a batch, or at the end of the epoch (`batch` None)."""
        due = batch is None or self.every_batch or time.monotonic() - self.last_look > _SECONDS_BETWEEN_LOOKS
        if self.said or not due or "loss" not in logs:
            return
        if math.isfinite(float(logs["loss"])):
            self.last_look, self.last_batch = time.monotonic(), batch
            return
        self.said = True
        where = f"batch {batch + 1}" if batch is not None else "its last batches"
        since = f" (after batch {self.last_batch + 1} it was still finite)" if self.last_batch is not None else ""
        self.events.tell(
            "loss not finite",
            f"the loss is {float(logs['loss'])} at {where} of epoch {epoch + 1}{since}: a smaller learning rate, "
            "clipping (clipnorm) or other targets may help; training goes on.",
            epoch=epoch,
            batch=batch,
        )
