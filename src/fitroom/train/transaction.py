"""A step that out-of-memory cannot break: roll back, release, take a smaller size, do the same batch again."""

import re
import time
from collections.abc import Callable, Sequence
from typing import Any

from fitroom.backends.contract import Backend, StepName, Stepper
from fitroom.errors import OutOfMemoryError
from fitroom.recipe import Recipe
from fitroom.remat.value import Remat
from fitroom.train.batch import Batch, cut_sizes
from fitroom.train.events import Events
from fitroom.train.sizing import Sizing
from fitroom.units import format_bytes

_OF_MEMORY = re.compile(r"memory|\boom\b|exhausted|alloc", re.IGNORECASE)  # a path may have "fitroom" in it
_NAMES: dict[StepName, str] = {"train_step": "training", "test_step": "validation"}
_Step = Callable[[int], dict[str, Any]]
"""One batch with at most so many samples at once."""

BATCH_STATISTICS = (
    "BatchNormalization sees micro-batches of {samples} instead of the whole batch; its moving statistics move "
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
        stepper_of: Callable[[Recipe], Stepper],
        events: Events,
        *,
        recipes: Sequence[Recipe] = (Recipe(),),
        whole: int | None = None,
        batch_statistics: Callable[[], bool],
    ) -> None:
        """`recipes` are what to begin with, then what to go on with where memory runs out; `whole` is the size of the
        batches, where it is known."""
        self.backend, self.events = backend, events
        self.training = Sizing(recipes=tuple(recipes), whole=whole)
        self.testing = Sizing()
        self.stepper = stepper_of(self.training.recipe)
        self._stepper_of, self._remat = stepper_of, self.training.recipe.remat
        self.batch_statistics = batch_statistics
        self.out_of_memory_count = 0
        self._has_cut = False

    def train(self, batch: Batch) -> dict[str, Any]:
        """One optimizer update from one batch, whatever it takes."""

        def step(samples: int) -> dict[str, Any]:
            self._follow(self.training.recipe)
            return self.stepper.train(batch, samples)

        logs = self._done(step, batch, self.training, "train_step")
        size = self.training.samples_at_once(batch.size)
        self._has_cut |= size < batch.size
        if size < batch.size and self.batch_statistics():
            largest = cut_sizes(batch.size, size)[0]
            said = BATCH_STATISTICS.format(samples=f"{largest} sample{'s' if largest > 1 else ''}")
            self.events.tell_once("batch statistics", said, micro_batch=size)
        self.training.succeeded(batch.size)
        return logs

    def test(self, batch: Batch) -> dict[str, Any]:
        """One batch of validation. Its size begins at that of training, where that cuts, and never changes it."""
        cuts = self._has_cut or self.training.current is not None
        if self.testing.current is None and cuts and self.stepper.why_whole("test_step") is None:
            self.testing.current = self.training.recipe.micro_batch
        return self._done(lambda samples: self.stepper.test(batch, samples), batch, self.testing, "test_step")

    def ahead(self, batch: Batch) -> Batch:
        """The batch brought nearer to the device; whoever asks must not hold on to a stepper for it."""
        return self.stepper.ahead(batch)

    def _done(self, step: _Step, batch: Batch, sizing: Sizing, name: StepName) -> dict[str, Any]:
        event: dict[str, Any] | None = None
        failed_at = 0.0
        while True:
            samples = sizing.samples_at_once(batch.size)
            try:
                logs = step(samples)
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
            before, why_whole = sizing.recipe.remat, self.stepper.why_whole(name)
            if not sizing.failed(samples, can_cut=why_whole is None):
                raise self._too_large(batch, _NAMES[name], said, why_whole)
            event = self._tell(sizing.recipe, before, samples, batch, _NAMES[name], said)

    def _follow(self, recipe: Recipe) -> None:
        """Have steps that recompute what the recipe says."""
        if recipe.remat == self._remat:
            return
        self.stepper.forget()
        self.stepper, self._remat = self._stepper_of(recipe), recipe.remat
        self.backend.release()  # what the one before held beside its programs

    def _tell(
        self, now: Recipe, before: str | Remat | None, samples: int, batch: Batch, what: str, said: str
    ) -> dict[str, Any]:
        smaller = min(now.micro_batch or batch.size, batch.size)
        is_new = now.remat != before
        again = f"{recomputed(now.remat)}, {smaller} at once" if is_new else f"{smaller} at once"
        return self.events.tell(
            "out of memory",
            f"out of memory in {what} with {samples} samples at once; the same batch again with {again}. "
            f"The batch stays at {batch.size}.",
            during=what,
            samples=samples,
            smaller=smaller,
            **({"recomputed": recomputed(now.remat)} if is_new else {}),
            error=said,
        )

    def _too_large(self, batch: Batch, what: str, said: str, why_whole: str | None) -> OutOfMemoryError:
        room = self._room()
        if why_whole is not None:
            return OutOfMemoryError(
                f"Out of memory in {what} with a batch of {batch.size}, which cannot be cut into micro-batches: "
                f"{why_whole}. The framework said: {said}{room}",
                hint="a smaller batch_size, smaller pictures or mixed precision; what was trained so far is intact",
            )
        return OutOfMemoryError(
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


def recomputed(remat: str | Remat | None) -> str:
    """What a step computes again, in words.

    >>> recomputed("blocks"), recomputed(Remat(segments=[("conv1", "add")])), recomputed(None)
    ('blocks recomputed', '1 segment recomputed', 'nothing recomputed')
    """
    return f"{remat if remat not in (None, 'none') else 'nothing'} recomputed"


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    told = [line for line in lines if _OF_MEMORY.search(line)]
    return (told or lines or [type(error).__name__])[0][:300]
