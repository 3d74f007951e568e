"""Puts a question to a room: variants, subjects, the search, and the plan that comes of it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from fitroom.budget import Budget
from fitroom.cards.catalogue import Card
from fitroom.errors import InputError, ModelError, NothingFitsError, UnknownNameError
from fitroom.estimating.estimate import estimate
from fitroom.keras_model.freezing import freeze_temporarily, layers_with_weights, num_frozen
from fitroom.keras_model.jit_choice import jit_choice
from fitroom.keras_model.layers import can_be_jitted
from fitroom.memory.estimate import Estimate
from fitroom.memory.step import NO_LIMIT_BYTES
from fitroom.planning.candidates import Candidate, Priced, has_enough
from fitroom.planning.covers import Covers
from fitroom.planning.memory import Memory
from fitroom.planning.option import Option, Speed
from fitroom.planning.result import Plan
from fitroom.planning.room import Room
from fitroom.planning.search import EstimateOf, Search
from fitroom.planning.subject import Subject
from fitroom.planning.variant import FROZEN_PARTS, LEAN_OPTIMIZERS, Variant
from fitroom.planning.why import why_this
from fitroom.recipe import PRECISIONS

AUTO = "auto"
PREFERENCES = ("whole batches", "speed")
Rebuild = Callable[[int], Any]
Say = Callable[[str], None]

_SMALLEST_PART = 0.5
"""Of the size of the pictures, where it may be changed."""

_PIXELS_STEP = 32


@dataclass(frozen=True, kw_only=True)
class Question:
    """What is to be trained, and what may be turned for it."""

    model: Any
    batch_size: int
    precision: str | None = None
    keep: frozenset[str] = frozenset()
    allow: frozenset[str] = frozenset()
    prefer: str = PREFERENCES[0]
    optimizer: Any = None
    loss: Any = None
    input_dtype: str | None = None
    micro_batch: int | None = None
    """The most samples at once, where that is settled."""

    rebuild: Rebuild | None = None

    def __post_init__(self) -> None:
        if self.prefer not in PREFERENCES:
            known = " or ".join(map(repr, PREFERENCES))
            raise InputError(f"`prefer` must be {known}. Received: {self.prefer!r}.")
        if self.precision not in (None, AUTO, *PRECISIONS):
            known = f"known are: {AUTO}, {', '.join(PRECISIONS)}"
            raise UnknownNameError("precision", str(self.precision), (AUTO, *PRECISIONS), more=known)
        if "image_size" in self.allow and self.rebuild is None:
            raise InputError(
                f"The model {self.model.name!r} is built for one size of pictures, so another cannot be planned.",
                hint="give `rebuild`, a function that makes the model for a size; or `fitroom plan` with its name",
            )
        if "frozen_layers" in self.allow:
            layers_with_weights(self.model)  # raises where they have no order


class Planner:
    """Finds the plan for one question and one room; what it learns there helps to guess for others."""

    def __init__(self, question: Question, room: Room, say: Say, estimate: EstimateOf | None = None) -> None:
        from fitroom.backends.choose import current_backend
        from fitroom.keras_model.layers import precision_of
        from fitroom.keras_model.objective import Objective
        from fitroom.keras_model.state import has_batch_statistics

        self._question, self._room, self._say = question, room, say
        self._estimate = estimate or self._estimated
        self._backend = current_backend().name
        self._own = Variant(
            precision=precision_of(question.model), jit=self._own_jit(), input_dtype=question.input_dtype
        )
        self._has_statistics = has_batch_statistics(question.model)
        objective = Objective(question.model)
        self._why_whole = objective.why_whole()
        self._untried_losses = objective.untried_losses if question.loss is None else []
        self._models: dict[int | None, Any] = {None: question.model}
        self._covers: dict[Any, Covers | None] = {}
        self._memory = Memory(self._backend)
        self._why_no_smaller: str | None = None
        self._refusals: dict[str, str | None] = {}

    def plan(self, *, probe: bool = False) -> Plan:
        """The best within what changes least; the task itself only where nothing else fits.

        With `probe` the best few are timed on the device in this machine, and that decides between them.
        """
        last: NothingFitsError | None = None
        best: Plan | None = None
        for variants in self._stages(self._room.card):
            search = self._search(variants, self._room)
            if best and not search.has_enough_for_statistics():
                continue  # what was found before changes less
            try:
                chosen = search.run()
                if probe:
                    chosen = search.timed(self._seconds_on_device)
            except NothingFitsError as error:
                last = last if last and last.smallest_bytes < error.smallest_bytes else error
                continue
            found = self._as_plan(search, chosen)
            if has_enough(chosen.candidate) or not search.spares_statistics:
                return found
            best = best or found
        if best is None:
            assert last is not None, "there is at least one stage"
            raise _with_a_card(last, self._backend, self._why_no_smaller)
        return replace(best, notes=(*best.notes, self._why_no_smaller)) if self._why_no_smaller else best

    def guess(self, room: Room) -> Option | None:
        """What a plan for another room would most likely be, by what was learnt in this one."""
        for variants in self._stages(room.card):
            search = self._search(variants, room)
            if found := search.guess():
                return self._option(search, found)
        return None

    def _search(self, variants: list[Variant], room: Room) -> Search:
        return Search(
            subjects=[self._subject(variant, room) for variant in variants],
            own=self._own,
            room=room,
            estimate=self._estimate,
            memory=self._memory,
            has_statistics=self._has_statistics,
            spares_statistics=self._has_statistics and self._question.prefer != "speed",
        )

    def _subject(self, variant: Variant, room: Room) -> Subject:
        from fitroom.planning.roofline.step_time import StepTime

        model, key = self._model_at(variant.image_size), (variant.precision, variant.image_size)
        if key not in self._covers:
            self._covers[key] = Covers.of_model(model, variant.precision)
        with freeze_temporarily(model, variant.frozen_layers):
            step_time = StepTime.of_model(model, backend=self._backend, card=room.card)
            sizes = Subject.bytes_of(model, self._question.batch_size)
        return Subject(
            variant=variant,
            batch_size=self._question.batch_size,
            may_recompute="remat" not in self._question.keep,
            may_cut="micro_batch" not in self._question.keep and self._why_whole is None,
            micro_batch=self._question.micro_batch,
            covers=self._covers[key],
            seconds=step_time.seconds if step_time else None,
            **sizes,
        )

    def _stages(self, card: Card) -> Iterator[list[Variant]]:
        """What to choose from: first without changing the task, then with each knob that is allowed."""
        plain = [replace(self._own, precision=precision, jit=self._jit()) for precision in self._precisions(card)]
        yield plain
        if "optimizer" in self._question.allow:
            yield [replace(variant, optimizer=name) for variant in plain for name in LEAN_OPTIMIZERS]
        optimizers = (None, *LEAN_OPTIMIZERS) if "optimizer" in self._question.allow else (None,)
        leaner = [replace(variant, optimizer=name) for variant in plain for name in optimizers]
        smallest = None
        for smallest in self._smaller_sizes():
            yield [replace(variant, image_size=smallest) for variant in leaner]
        for size in dict.fromkeys((None, smallest)):
            for number in self._frozen_numbers():
                yield [replace(variant, image_size=size, frozen_layers=number) for variant in leaner]

    def _precisions(self, card: Card) -> list[str]:
        own = self._own.precision
        if self._question.precision is None or "precision" in self._question.keep:
            return [own]
        if self._question.precision != AUTO:
            return [self._question.precision]
        other = precision_for(card)
        return [own, other] if other != own and self._why_not_in(other) is None else [own]

    def _why_not_in(self, precision: str) -> str | None:
        """Why the model cannot be estimated in another precision, where it was left free."""
        from fitroom.keras_model.twin import twin_in_precision

        if precision not in self._refusals:
            try:
                twin_in_precision(self._question.model, precision)
                self._refusals[precision] = None
            except ModelError as error:
                self._refusals[precision] = error.message
        return self._refusals[precision]

    def _notes(self, candidate: Candidate) -> Iterator[str]:
        """What could not be tried."""
        if self._own.jit is False and jit_choice(self._question.model) is False:
            yield "Not jitted, as the model was compiled; without `jit_compile=False` a plan has it compiled by XLA."
        if self._why_whole:
            yield f"The batch cannot be cut: {self._why_whole}."
        if self._untried_losses and not candidate.is_whole:
            names = ", ".join(map(repr, self._untried_losses))
            yield (
                f"Whether the loss {names} can be cut is tried when training begins: "
                "one that couples the samples of a batch cannot."
            )
        yield from filter(None, self._refusals.values())

    def _own_jit(self) -> bool | None:
        """On TensorFlow Keras has a choice, and makes it on the card; elsewhere nothing is to be gained by another."""
        if self._backend != "tensorflow":
            return None
        model = self._question.model
        choice = jit_choice(model)
        # Who keeps it keeps what Keras made of it on this machine: on a CPU "auto" is a step without XLA.
        if choice is None or (model.compiled and "jit" in self._question.keep):
            return bool(model.jit_compile)
        return choice is not False and can_be_jitted(model)

    def _jit(self) -> bool | None:
        """What the user chose stays."""
        keeps_it = self._own.jit is None or "jit" in self._question.keep or jit_choice(self._question.model) is False
        return self._own.jit if keeps_it else can_be_jitted(self._question.model)

    def _smaller_sizes(self) -> Iterator[int]:
        """Of pictures, as far as that is allowed and the model can be built for them."""
        if "image_size" not in self._question.allow:
            return
        own = self._question.model.inputs[0].shape[1] or 0
        sizes = range(own - own % _PIXELS_STEP or own, int(_SMALLEST_PART * own) - 1, -_PIXELS_STEP)
        for size in sizes:
            if size < own:
                try:
                    self._model_at(size)
                except InputError as error:  # too small for it, and so is what is smaller
                    self._why_no_smaller = f"Pictures of {size} x {size} were allowed and cannot be: {error.message}"
                    return
                yield size

    def _frozen_numbers(self) -> list[int]:
        """How many of the first layers may stay untrained, the fewest first."""
        if "frozen_layers" not in self._question.allow:
            return []
        own, count = num_frozen(self._question.model), len(layers_with_weights(self._question.model))
        numbers = {min(round(part * count), count - 1) for part in FROZEN_PARTS}
        return sorted(number for number in numbers if number > own)

    def _model_at(self, image_size: int | None) -> Any:
        if image_size not in self._models:
            assert self._question.rebuild is not None, "only asked for where there is one"
            assert image_size is not None, "the model itself is there from the start"
            self._models[image_size] = self._question.rebuild(image_size)
        return self._models[image_size]

    def _estimated(self, candidate: Candidate) -> Estimate:
        recomputed = ", some of it recomputed" if candidate.recomputes else ""
        self._say(f"estimating {candidate.micro_batch} at once in {candidate.variant.words}{recomputed}")
        found = estimate(
            self._model_at(candidate.variant.image_size),
            self._question.batch_size,
            recipe=replace(candidate.recipe, image_size=None),
            optimizer=None if candidate.variant.optimizer else self._question.optimizer,
            loss=self._question.loss,
            gpu=self._room.card,
            limit=NO_LIMIT_BYTES,
        )
        return replace(found, limit_bytes=self._room.budget.bytes)

    def _seconds_on_device(self, candidate: Candidate) -> float:
        from fitroom.planning.probe import seconds_of_step

        self._say(f"timing {candidate.micro_batch} at once in {candidate.variant.words}")
        return seconds_of_step(
            self._model_at(candidate.variant.image_size),
            self._question.batch_size,
            candidate.recipe,
            optimizer=self._question.optimizer,
            loss=self._question.loss,
        )

    def _as_plan(self, search: Search, chosen: Priced) -> Plan:
        from fitroom.planning.identity import model_digest

        candidate = chosen.candidate
        frontier = tuple(self._option(search, one) for one in search.frontier(chosen))
        found = search.estimates[candidate.key]
        model = self._model_at(candidate.variant.image_size)
        with freeze_temporarily(model, candidate.variant.frozen_layers):
            digest = model_digest(model)
        return Plan(
            recipe=candidate.recipe,
            batch_size=self._question.batch_size,
            micro_batch=candidate.micro_batch,
            estimate=found,
            speed=self._speed(search, candidate),
            budget=self._room.budget,
            reserve_bytes=self._room.reserve_bytes,
            changes=chosen.changes,
            why=why_this(search, chosen),
            frontier=frontier,
            fallbacks=tuple(one.recipe for one in search.smaller_than(candidate)),
            model=self._question.model.name,
            backend=self._backend,
            gpu=self._room.card.name,
            model_digest=digest,
            notes=(*self._room.notes, *self._notes(candidate), *found.notes),
        )

    def _option(self, search: Search, one: Priced) -> Option:
        return Option(
            recipe=one.candidate.recipe,
            micro_batch=one.candidate.micro_batch,
            peak_bytes=one.peak_bytes,
            required_bytes=one.required_bytes,
            fits=one.fits,
            confirmed=one.confirmed,
            speed=self._speed(search, one.candidate),
            changes=one.changes,
        )

    def _speed(self, search: Search, candidate: Candidate) -> Speed | None:
        subject = next(one for one in search.subjects if one.variant == candidate.variant)
        if subject.seconds is None and not candidate.timed:
            return None
        return Speed(
            seconds_per_step=candidate.seconds,
            samples_per_second=self._question.batch_size / candidate.seconds,
            method="measured" if candidate.timed else "roofline",
        )


def precision_for(card: Card) -> str:
    """The dtype policy that a card does well."""
    if card.bf16_flops:
        return "mixed_bfloat16"
    return "mixed_float16" if card.fp16_flops else "float32"


def _with_a_card(error: NothingFitsError, backend: str, and_why: str | None) -> NothingFitsError:
    """The error with the smallest card of the catalogue that would do, and with what else could not be."""
    from fitroom.cards.catalogue import all_cards

    rooms = [(Budget.of(card.name, backend=backend).bytes, card) for card in all_cards() if card.vendor == "NVIDIA"]
    enough = [(size, card) for size, card in rooms if size >= error.smallest_bytes]
    card = min(enough, key=lambda pair: pair[0])[1] if enough else None
    return NothingFitsError(
        f"{error.message} {and_why}" if and_why else error.message,
        smallest_bytes=error.smallest_bytes,
        recipe=error.recipe,
        hint=f"{error.hint}; the smallest card that does is {card.name}" if card else error.hint,
    )
