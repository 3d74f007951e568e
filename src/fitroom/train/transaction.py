"""A step that out-of-memory cannot break: roll back, release, take a smaller size, do the same batch again."""

import re
import time
from collections.abc import Callable
from typing import Any

from fitroom.backends.contract import Backend, Stepper
from fitroom.errors import OutOfMemoryError
from fitroom.train.batch import Batch, cut_sizes
from fitroom.train.events import Events
from fitroom.train.sizing import Sizing
from fitroom.units import format_bytes

_OF_MEMORY = re.compile(r"memory|\boom\b|exhausted|alloc", re.IGNORECASE)  # a path may have "fitroom" in it
_Step = Callable[[Batch, int], dict[str, Any]]

BATCH_STATISTICS = (
    "BatchNormalization sees micro-batches of {size} samples instead of the whole batch; its moving statistics move "
    "as far as with the whole batch."
)

_TOO_LARGE = (
    "smaller pictures, mixed precision, a smaller model or a leaner optimizer; `fitroom estimate` shows where the "
    "memory goes. What was trained so far is intact"
)
_NOT_GIVEN_BACK = (
    "most of the memory is taken although nothing runs. Something else holds it, or XLA does not give back what a "
    "failed attempt took, as in TensorFlow's jitted steps: start again with a micro_batch that fits (`fitroom estimate "
    "--micro-batch N`), or with jit_compile=False. What was trained so far is intact"
)


class Transaction:
    """The steps of one run. Training and validation each have a size of their own."""

    def __init__(
        self,
        backend: Backend,
        stepper: Stepper,
        events: Events,
        *,
        micro_batch: int | None,
        batch_statistics: Callable[[], bool],
    ) -> None:
        self.backend, self.stepper, self.events = backend, stepper, events
        self.training = Sizing(ceiling=micro_batch)
        self.testing = Sizing()
        self.batch_statistics = batch_statistics
        self.out_of_memory_count = 0

    def train(self, batch: Batch) -> dict[str, Any]:
        """One optimizer update from one batch, whatever it takes."""
        logs = self._done(self.stepper.train, batch, self.training, "training")
        size = self.training.samples_at_once(batch.size)
        if size < batch.size and self.batch_statistics():
            said = BATCH_STATISTICS.format(size=cut_sizes(batch.size, size)[0])
            self.events.tell_once("batch statistics", said, micro_batch=size)
        self.training.succeeded(batch.size)
        return logs

    def test(self, batch: Batch) -> dict[str, Any]:
        """One batch of validation. Its size begins at what training found, and never changes that."""
        if self.testing.current is None:
            self.testing.current = self.training.current
        return self._done(self.stepper.test, batch, self.testing, "validation")

    def _done(self, step: _Step, batch: Batch, sizing: Sizing, what: str) -> dict[str, Any]:
        event: dict[str, Any] | None = None
        failed_at = 0.0
        while True:
            samples = sizing.samples_at_once(batch.size)
            try:
                logs = step(batch, samples)
            except Exception as error:
                if not self.backend.is_out_of_memory(error):
                    raise
                said = _first_line(error)
            else:
                if event is not None:
                    event["seconds_to_next_step"] = round(time.monotonic() - failed_at, 3)
                return logs
            failed_at = time.monotonic()
            # Here the error is gone, and with it the frames that its traceback held and all that lives in them.
            self.out_of_memory_count += 1
            self.stepper.forget()
            self.backend.release()
            self._check_can_shrink(samples, batch, what, said)
            smaller = sizing.failed(samples)
            event = self.events.tell(
                "out of memory",
                f"out of memory in {what} with {samples} samples at once; the same batch again with {smaller} at once. "
                f"The batch stays at {batch.size}.",
                during=what,
                samples=samples,
                smaller=smaller,
                error=said,
            )

    def _check_can_shrink(self, samples: int, batch: Batch, what: str, said: str) -> None:
        room = self._room()
        if self.stepper.why_whole is not None:
            raise OutOfMemoryError(
                f"Out of memory in {what} with a batch of {batch.size}, which cannot be cut into micro-batches: "
                f"{self.stepper.why_whole}. The framework said: {said}{room}",
                hint="a smaller batch_size, smaller pictures or mixed precision; what was trained so far is intact",
            )
        if samples <= 1:
            raise OutOfMemoryError(
                f"Out of memory in {what} with one sample at once. The framework said: {said}{room}",
                hint=_NOT_GIVEN_BACK if self._is_full() else _TOO_LARGE,
            )

    def _is_full(self) -> bool:
        """Whether little is free although nothing runs."""
        reading = self.backend.read_memory(self.backend.devices()[0])
        return bool(reading.limit_bytes and reading.in_use_bytes and reading.in_use_bytes > reading.limit_bytes / 2)

    def _room(self) -> str:
        """What there is, in words, as far as the framework counts it."""
        device = self.backend.devices()[0]
        reading = self.backend.read_memory(device)
        if reading.limit_bytes is None:
            return ""
        in_use = f", {format_bytes(reading.in_use_bytes)} of it in use" if reading.in_use_bytes is not None else ""
        return f" There is: {format_bytes(reading.limit_bytes)} on {device.name}{in_use} when nothing runs."


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    told = [line for line in lines if _OF_MEMORY.search(line)]
    return (told or lines or [type(error).__name__])[0][:300]
