"""A step as a transaction. Out of memory: roll back, release, take a smaller recipe, repeat the same batch."""

import re
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal

from fitroom.backends.contract import Backend, Stepper
from fitroom.batch import Batch, StepName, micro_batch_sizes
from fitroom.errors import FreshStart, ModelError, OutOfMemoryError
from fitroom.events import EventKind, Events
from fitroom.explaining.advice import KERNELS, MICRO_BATCH, REMAT, Setting
from fitroom.explaining.explain import explain_lines
from fitroom.explaining.explanation import Explanation
from fitroom.recipe import Recipe, Remat
from fitroom.train.first_steps import FirstSteps
from fitroom.train.fresh_start import IN_THE_WAY, fresh_start_after, restart_words
from fitroom.train.sizing import Place, Sizing
from fitroom.units import format_bytes

_ABOUT_MEMORY = re.compile(r"memory|\boom\b|exhausted|alloc", re.IGNORECASE)  # a path may have "fitroom" in it
"""Picks the line of a framework's error to quote in our message. `backends/out_of_memory.py` decides whether the error
counts as out of memory; `explaining/messages.py` explains logs, with sizes and devices."""

_NAMES: dict[StepName, str] = {"train_step": "training", "test_step": "validation", "predict_step": "prediction"}
_Step = Callable[[int], Any]
"""Carries out one batch with at most so many samples in a micro-batch."""

BATCH_STATISTICS = (
    "BatchNormalization sees micro-batches of {samples} instead of the whole batch; its moving statistics move "
    "as far as with the whole batch."
)

_TOO_LARGE = (
    "smaller images, mixed precision, a smaller model or a leaner optimizer; `fitroom estimate` shows where the "
    "memory goes. What was trained so far is intact"
)
_TOO_LARGE_WHOLE = "a smaller batch_size or smaller images; what was trained so far is intact"


class Transaction:
    """The steps of one run. Training, evaluation and prediction each have a micro-batch of their own."""

    def __init__(
        self,
        backend: Backend,
        make_stepper: Callable[[Recipe], Stepper],
        events: Events,
        *,
        recipes: Sequence[Recipe] = (Recipe(),),
        whole: int | None = None,
        batch_statistics: Callable[[], bool],
        whole_fallbacks: Callable[[Recipe], tuple[Recipe, ...]] = lambda recipe: (),
        whole_offers: Callable[[Recipe], tuple[Setting, ...]] = lambda recipe: (),
    ) -> None:
        """`recipes` are the one to start with, then those for when memory runs out; `whole` is the size of the batches,
        where it is known.

        Where batches cannot be split, `whole_fallbacks` gives further recipes for a recipe, and `whole_offers` the
        settings that are left to the user when these are not enough.
        """
        self.backend, self.events = backend, events
        self.training = Sizing(recipes=tuple(recipes), whole=whole)
        self.testing = Sizing()
        self.predicting = Sizing()
        self.names = dict(_NAMES)
        """What each kind of step is called when memory runs out in it."""
        self.stepper = make_stepper(self.training.recipe)
        self._whole_fallbacks, self._whole_offers = whole_fallbacks, whole_offers
        self._make_stepper, self._in_force = make_stepper, self.training.recipe
        self.batch_statistics = batch_statistics
        self.out_of_memory_count = 0
        self.first_steps: FirstSteps | None = None
        """Measures the first steps of a training with a plan."""
        self._has_split = False
        self._most_done: dict[StepName, int] = {}
        """The largest micro-batch of each kind of step that succeeded in this process."""

    def prepare(self, batch: Batch) -> None:
        """Build the variables of the model and the optimizer, as Keras does with its first batch."""
        prepare(self.backend, self.stepper, batch)

    def train(self, batch: Batch) -> dict[str, Any]:
        """Train on one batch with one optimizer update, in as many attempts as needed. Returns its logs."""

        def step(samples: int) -> dict[str, Any]:
            self._set_recipe(self.training.recipe)
            return self.stepper.train(batch, samples)

        self.prepare(batch)
        counts = self.first_steps is not None and self.first_steps.before(batch.size, self.training.recipe)
        logs: dict[str, Any] = self._attempt(step, batch, self.training, "train_step")
        if self.first_steps is not None and counts:
            self.first_steps.after(self.stepper, self.training.recipe, batch.size)
        share = self.stepper.samples_per_device(batch.size)
        size = self.training.micro_batch_for(share)
        self._has_split |= size < share
        if size < share and self.batch_statistics():
            largest = micro_batch_sizes(share, size)[0]
            said = BATCH_STATISTICS.format(samples=f"{largest} sample{'s' if largest > 1 else ''}")
            self.events.tell_once(EventKind.BATCH_STATISTICS, said, micro_batch=size)
        self.training.succeeded(share)
        return logs

    def test(self, batch: Batch) -> dict[str, Any]:
        """Evaluate on one batch. The micro-batch of evaluation starts at that of training, which it never changes."""
        is_split = self._has_split or self.training.current is not None
        if self.testing.current is None and is_split and self.stepper.why_whole("test_step") is None:
            self.testing.current = self.training.recipe.micro_batch
        found: dict[str, Any] = self._attempt(
            lambda samples: self.stepper.test(batch, samples), batch, self.testing, "test_step"
        )
        return found

    def predict(self, batch: Batch) -> Any:
        """Predict the outputs for one batch. The micro-batch of prediction never changes that of training."""
        return self._attempt(
            lambda samples: self.stepper.predict_batch(batch, samples), batch, self.predicting, "predict_step"
        )

    def prefetch(self, batch: Batch) -> Batch:
        """Prepare a batch for its transfer to the device, by the stepper in force. Returns the batch to train on.

        The thread that makes batches ahead calls this method instead of `stepper.prefetch`: another remat replaces the
        stepper in the middle of an epoch, and the new one must be told which batches come.
        """
        return self.stepper.prefetch(batch)

    def _attempt(self, step: _Step, batch: Batch, sizing: Sizing, name: StepName) -> Any:
        event: dict[str, Any] | None = None
        failed_at, first_failed = 0.0, 0
        failed: tuple[Place, int] | None = None
        while True:
            samples = sizing.micro_batch_for(self.stepper.samples_per_device(batch.size))
            try:
                logs = step(samples)
            except Exception as error:
                # That a loss couples its samples shows when a batch that ran out of memory is to be split.
                couples = failed is not None and isinstance(error, ModelError) and self.stepper.why_whole(name)
                if not couples and not self.backend.is_out_of_memory(error):
                    raise
                if not couples:
                    said, text, failed = _first_line(error), "".join(traceback.format_exception(error)), None
                    self.out_of_memory_count += 1
            else:
                if event is not None:
                    event["seconds_to_next_step"] = round(time.monotonic() - failed_at, 3)
                self._most_done[name] = max(samples, self._most_done.get(name, 0))
                return logs
            if failed is not None:  # it was split, and cannot be
                place, samples = failed
                sizing.return_to(place)
            failed = (sizing.number, sizing.current), samples
            failed_at = time.monotonic()
            first_failed = first_failed or samples
            # Here the error is freed, and with it the frames that its traceback held and their tensors.
            self.stepper.forget()
            self.backend.release()
            before, why_whole = sizing.recipe, self.stepper.why_whole(name)
            if (
                why_whole is not None
                and sizing is self.training
                and not any(recipe.recomputes for recipe in sizing.recipes)
            ):
                sizing.add(self._whole_fallbacks(sizing.recipes[-1]))
            if not sizing.failed(samples, can_split=why_whole is None):
                fresh_start = self._fresh_start(name, first_failed, samples)
                found = self._out_of_memory_error(batch, self.names[name], said, why_whole, fresh_start)
                offers = () if why_whole is None or sizing is not self.training else self._whole_offers(sizing.recipe)
                found.explanation = _explain(text, sizing.recipe, offers)
                if offers:
                    named = "; ".join(f"{offer.what} ({offer.how})" for offer in offers)
                    found.hint = f"{named}; {found.hint}"
                raise found
            event = self._tell(sizing.recipe, before, samples, batch, self.names[name], said, why_whole)

    def _set_recipe(self, recipe: Recipe) -> None:
        """Switch to a stepper that computes as the recipe says."""
        if recipe.remat == self._in_force.remat and recipe.kernels == self._in_force.kernels:
            return
        self.stepper.forget()
        self.stepper, self._in_force = self._make_stepper(recipe), recipe
        self.backend.release()  # what the one before held beside its programs

    def _tell(
        self, now: Recipe, before: Recipe, samples: int, batch: Batch, what: str, said: str, why_whole: str | None
    ) -> dict[str, Any]:
        share = self.stepper.samples_per_device(batch.size)
        smaller = min(now.micro_batch or share, share)
        is_new = now.remat != before.remat
        has_new_kernels = now.kernels != before.kernels
        parts = [describe_remat(now.remat)] if is_new else []
        parts += [f"{now.kernels} kernels, which change rounding"] if has_new_kernels else []
        again = ", ".join([*parts, f"micro-batch {smaller}"])
        return self.events.tell(
            EventKind.OUT_OF_MEMORY,
            f"out of memory in {what} with micro-batch {samples}; the same batch again with {again}. "
            f"The batch stays at {batch.size}{f' and whole: {why_whole}' if why_whole else ''}.",
            during=what,
            samples=samples,
            smaller=smaller,
            **({"recomputed": describe_remat(now.remat)} if is_new else {}),
            **({"kernels": now.kernels} if has_new_kernels else {}),
            error=said,
        )

    def _fresh_start(self, name: StepName, first: int, last: int) -> FreshStart | None:
        most_done = self._most_done.get(name, 0)
        size = fresh_start_after(first=first, last=last, most_done=most_done)
        if size is None or self.names[name] not in ("training", "validation"):
            return None
        during: Literal["training", "validation"] = "training" if name == "train_step" else "validation"
        return FreshStart(micro_batch=size, during=during, is_known_to_fit=size <= most_done)

    def _out_of_memory_error(
        self, batch: Batch, what: str, said: str, why_whole: str | None, fresh_start: FreshStart | None
    ) -> OutOfMemoryError:
        memory, hints = _memory_words(self.backend), [_TOO_LARGE if why_whole is None else _TOO_LARGE_WHOLE]
        if fresh_start is not None:
            hints = [f"{IN_THE_WAY}: {restart_words(fresh_start)}", f"where that fails too, {hints[0]}"]
        if self._is_full():
            hints.insert(0, "most of the memory is taken although nothing runs")
        how = (
            "with micro-batch 1"
            if why_whole is None
            else f"with a batch of {batch.size}, which cannot be split into micro-batches: {why_whole}"
        )
        return OutOfMemoryError(
            f"Out of memory in {what} {how}. The framework said: {said}{memory}",
            hint="; ".join(hints),
            fresh_start=fresh_start,
        )

    def _is_full(self) -> bool:
        """Whether more than half of the memory is in use although no step runs."""
        reading = self.backend.read_memory(self.backend.devices()[0])
        return bool(reading.limit_bytes and reading.in_use_bytes and reading.in_use_bytes > reading.limit_bytes / 2)


def prepare(backend: Backend, stepper: Stepper, batch: Batch) -> None:
    """Build the variables of a stepper's model. Raises OutOfMemoryError, the model as before, if they do not fit."""
    try:
        stepper.prepare(batch)
        return
    except Exception as error:
        if not backend.is_out_of_memory(error):
            raise
        said, text = _first_line(error), "".join(traceback.format_exception(error))
    backend.release()
    raise OutOfMemoryError(
        "Out of memory while the weights and the optimizer's variables were made, before any batch was trained. The "
        f"framework said: {said}{_memory_words(backend)}",
        hint="free the card of other models and processes; else a smaller model or a leaner optimizer. "
        "`fitroom estimate` shows what they take. The model is as it was, not built",
        explanation=_explain(text, Recipe()),
    )


def _explain(text: str, recipe: Recipe, offers: tuple[Setting, ...] = ()) -> Explanation | None:
    """Explain the framework's error, without the settings that were tried; None where it is not recognised."""
    explanation = explain_lines(text.splitlines())
    if explanation.failure is None:
        return None
    explanation.failure.line_number, explanation.failure.quote = 0, ""  # the message has it
    tried = {MICRO_BATCH} | ({REMAT} if recipe.remat not in (None, "none") else set())
    tried |= {KERNELS} if recipe.kernels == "fused" else set()
    left = tuple(setting for setting in explanation.settings if setting not in tried)
    return replace(explanation, settings=tuple(dict.fromkeys((*offers, *left))), notes=())


def _memory_words(backend: Backend) -> str:
    """Say for people how much memory there is, where the framework counts it."""
    device = backend.devices()[0]
    reading = backend.read_memory(device)
    if reading.limit_bytes is None:
        return ""
    in_use = f", {format_bytes(reading.in_use_bytes)} of it in use" if reading.in_use_bytes is not None else ""
    return f" There is: {format_bytes(reading.limit_bytes)} on {device.name}{in_use} when nothing runs."


def describe_remat(remat: str | Remat | None) -> str:
    """Say for people what a step recomputes.

    >>> describe_remat("blocks"), describe_remat(Remat(segments=[("conv1", "add")])), describe_remat(None)
    ('blocks recomputed', '1 segment recomputed', 'nothing recomputed')
    """
    return f"{remat if remat not in (None, 'none') else 'nothing'} recomputed"


def _first_line(error: BaseException) -> str:
    stripped = map(str.strip, str(error).splitlines())
    lines = [line for line in stripped if line and not line.startswith('File "')]  # a path may have "memory" in it
    told = [line for line in lines if _ABOUT_MEMORY.search(line)]
    return (told or lines or [type(error).__name__])[0][:300]
