"""Carries out a plan request: a search over the variants of each stage, and the plan made of what it found."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from fitroom.activity import announce, begin_step
from fitroom.budget import Budget
from fitroom.errors import NothingFitsError
from fitroom.keras_model.freezing import freeze_temporarily
from fitroom.memory.estimate import Estimate
from fitroom.planning.candidate_factory import CandidateFactory
from fitroom.planning.candidates import Candidate, PricedCandidate, has_enough_samples
from fitroom.planning.estimates import EstimatesOfPlan, format_micro_batch
from fitroom.planning.explanation import explain_choice
from fitroom.planning.memory_model import MemoryModel
from fitroom.planning.option import Option, Speed
from fitroom.planning.remat_choices import RematChoices
from fitroom.planning.request import PlanRequest, Say
from fitroom.planning.result import Plan
from fitroom.planning.search import EstimateOf, Search
from fitroom.planning.stages import VariantStages
from fitroom.planning.target import Target
from fitroom.planning.variant import Variant
from fitroom.units import format_bytes, used_of


class Planner:
    """Finds the plan for one request and one target. What it learns there helps to predict plans for other targets."""

    def __init__(
        self, request: PlanRequest, target: Target, say: Say, estimate: EstimateOf | None = None, *, place: str = ""
    ) -> None:
        """`place` says which of several plans it is, in front of each line of text; `estimate` replaces real ones."""
        from fitroom.backends.choose import current_backend
        from fitroom.keras_model.objective import Objective
        from fitroom.keras_model.state import has_batch_statistics

        self._request, self._target, self._say, self._place = request, target, say, place
        self._estimate = estimate
        self._backend = current_backend().name
        self._stages = VariantStages(request, self._backend)
        self._has_statistics = has_batch_statistics(request.model)
        objective = Objective(request.model)
        self._why_whole = objective.why_whole()
        self._untried_losses = objective.untried_losses if request.loss is None else []
        self._remat_choices: dict[Any, RematChoices | None] = {}
        self._memory = MemoryModel(self._backend)
        self._work = EstimatesOfPlan(request, target, self._stages.model_at, self._tell)
        self._search: Search | None = None
        self._has_said_first = False

    def plan(self, *, probe: bool = False) -> Plan:
        """Return the best plan of the first stage that has one; stages that change the task come last.

        With `probe` the best few candidates are timed on the device in this machine, and the times decide.
        """
        try:
            return self._plan(probe=probe)
        finally:
            self._work.cancel()

    def _plan(self, *, probe: bool) -> Plan:
        last: NothingFitsError | None = None
        best: Plan | None = None
        for variants in self._stages.list_stages(self._target.card):
            search = self._make_search(variants, self._target)
            if best and not search.has_enough_for_statistics():
                continue  # what was found before changes less
            try:
                chosen = search.run()
                if probe:
                    chosen = search.time_fastest(self._time_on_device)
            except NothingFitsError as error:
                last = last if last and last.smallest_bytes < error.smallest_bytes else error
                continue
            found = self._make_plan(search, chosen)
            if has_enough_samples(chosen.candidate) or not search.protects_statistics:
                return found
            best = best or found
        why_no_smaller = self._stages.why_no_smaller
        if best is None:
            assert last is not None, "there is at least one stage"
            raise _add_card(last, self._backend, " ".join(filter(None, [why_no_smaller, *self._why_not_smaller()])))
        return replace(best, notes=(*best.notes, why_no_smaller)) if why_no_smaller else best

    def guess(self, target: Target) -> Option | None:
        """Predict the choice for another target from the estimates made so far; None where nothing fits."""
        for variants in self._stages.list_stages(target.card):
            search = self._make_search(variants, target)
            if found := search.guess():
                return self._make_option(search, found)
        return None

    def _make_search(self, variants: list[Variant], target: Target) -> Search:
        self._search = Search(
            factories=[self._make_factory(variant, target) for variant in variants],
            own=self._stages.own,
            target=target,
            estimate=self._estimate or self._work.estimate,
            begin=self._work.begin if self._estimate is None and self._work.can_begin else None,
            when_first=self._say_first,
            memory=self._memory,
            has_statistics=self._has_statistics,
            protects_statistics=self._has_statistics and self._request.prefer != "speed",
            begins_even=self._backend == "jax",
        )
        return self._search

    def _make_factory(self, variant: Variant, target: Target) -> CandidateFactory:
        from fitroom.planning.roofline.step_time import StepTime

        model, key = self._stages.model_at(variant.image_size), (variant.precision, variant.image_size)
        if key not in self._remat_choices:
            self._remat_choices[key] = RematChoices.of_model(model, variant.precision)
        with freeze_temporarily(model, variant.frozen_layers):
            step_time = StepTime.of_model(model, backend=self._backend, card=target.card)
            sizes = CandidateFactory.bytes_of(model, self._request.batch_size)
        return CandidateFactory(
            variant=variant,
            batch_size=self._request.batch_size,
            may_recompute="remat" not in self._request.keep,
            may_split="micro_batch" not in self._request.keep and self._why_whole is None,
            micro_batch=self._request.micro_batch,
            remat_choices=self._remat_choices[key],
            seconds=step_time.seconds if step_time else None,
            **sizes,
        )

    def _tell(self, candidate: Candidate) -> None:
        """Say which estimate is made, how many there are, and how long it takes."""
        done, search = self._work.count, self._search
        ahead = search.count_ahead() if search else 1
        place = f"estimate {done + 1} of about {done + max(ahead, 1)}"
        seconds = self._work.expected_seconds()
        recomputed = f", {candidate.remat} recomputed" if candidate.recomputes else ""
        takes = f", about {seconds:.0f} s" if seconds else ""
        detail = f"{format_micro_batch(candidate)} in {candidate.variant.words}{recomputed}{takes}"
        if not begin_step(f"{self._place}{place}", detail, expected_seconds=seconds):
            self._say(f"{self._place}{place}: {detail}")

    def _tell_step(self, text: str) -> None:
        if not begin_step(text):
            self._say(text)

    def _say_first(self, search: Search) -> None:
        """Say what the plan will most likely be, once one estimate is there to interpolate from."""
        found = None if self._has_said_first else search.guess()
        if found is None or found.confirmed:
            return
        self._has_said_first = True
        speed = self._make_speed(search, found.candidate)
        recomputed = f"{found.candidate.remat} recomputed" if found.candidate.recomputes else "nothing recomputed"
        fast = f", {speed.samples_per_second:.0f} samples/s" if speed else ""
        text = (
            f"first answer, interpolated: {format_micro_batch(found.candidate)} in {found.candidate.variant.words}, "
            f"{recomputed}: about {used_of(found.required_bytes, self._target.budget.bytes)}{fast}; "
            "an estimate of it confirms or corrects that"
        )
        if not announce(text):
            self._say(text)

    def _time_on_device(self, candidate: Candidate) -> float:
        from fitroom.planning.probe import time_step

        self._tell_step(f"timing {format_micro_batch(candidate)} in {candidate.variant.words}")
        return time_step(
            self._stages.model_at(candidate.variant.image_size),
            self._request.batch_size,
            candidate.recipe,
            optimizer=self._request.optimizer,
            loss=self._request.loss,
        )

    def _make_plan(self, search: Search, chosen: PricedCandidate) -> Plan:
        from fitroom.planning.identity import model_digest

        candidate = chosen.candidate
        frontier = tuple(self._make_option(search, one) for one in search.find_frontier(chosen))
        found = search.estimates[candidate.key]
        model = self._stages.model_at(candidate.variant.image_size)
        with freeze_temporarily(model, candidate.variant.frozen_layers):
            digest = model_digest(model)
        return Plan(
            recipe=candidate.recipe,
            batch_size=self._request.batch_size,
            micro_batch=candidate.micro_batch,
            estimate=found,
            speed=self._make_speed(search, candidate),
            budget=self._target.budget,
            reserve_bytes=self._target.reserve_bytes,
            changes=chosen.changes,
            why=explain_choice(search, chosen),
            frontier=frontier,
            fallbacks=tuple(one.recipe for one in search.find_fallbacks(candidate)),
            model=self._request.model.name,
            backend=self._backend,
            gpu=self._target.card.name,
            model_digest=digest,
            notes=(
                *self._target.notes,
                *self._notes(candidate),
                *found.notes,
                *self._augmentation_notes(candidate, found),
            ),
        )

    def _notes(self, candidate: Candidate) -> Iterator[str]:
        """Yield a sentence for each thing that could not be tried."""
        yield from self._stages.jit_notes()
        yield from self._whole_notes()
        if self._untried_losses and not candidate.is_whole:
            names = ", ".join(map(repr, self._untried_losses))
            yield (
                f"Whether the loss {names} can be computed in micro-batches is tried when training begins: "
                "one that couples the samples of a batch cannot."
            )
        yield from self._stages.precision_notes()

    def _whole_notes(self) -> Iterator[str]:
        """Yield why a batch stays whole, and what may take the place of micro-batches."""
        if self._why_whole is None:
            return
        yield f"The batch cannot be split into micro-batches: {self._why_whole}."
        asked, keep = self._request, self._request.keep
        ways = [
            *(["remat"] if "remat" not in keep else []),
            *(["XLA"] if "jit" not in keep and self._backend == "tensorflow" else []),
            *(["fused kernels"] if self._stages.kernels_in(self._stages.own.precision) else []),
            *(["another precision"] if asked.precision is not None and "precision" not in keep else []),
        ]
        if ways:
            yield f"In its place a plan may take {', '.join(ways)}."
        if asked.precision is None and "precision" not in keep and self._stages.own.precision == "float32":
            yield 'Mixed precision was not allowed; --precision auto (`precision="auto"`) allows it.'

    def _why_not_smaller(self) -> Iterator[str]:
        """Yield why nothing fits where a batch must stay whole, and what is left."""
        if self._why_whole is None:
            return
        yield from self._whole_notes()
        if self._backend == "jax" and self._estimate is None and (least := self._estimate_under_limit()) is not None:
            fits = "fits" if least.fits else "does not fit either"
            yield (
                "Under a limit XLA recomputes by itself, which is slower and not planned with: the step is then "
                f"predicted to need {format_bytes(least.required_bytes)}, which {fits}; `fitroom.fit` without a plan "
                "trains so."
            )

    def _estimate_under_limit(self) -> Estimate | None:
        """Estimate the plain step under the limit, below which XLA tries to stay by itself."""
        from fitroom.errors import FitroomError
        from fitroom.estimating.estimate import estimate

        self._tell_step("estimating the step as XLA recomputes it by itself")
        try:
            return estimate(
                self._request.model,
                self._request.batch_size,
                optimizer=self._request.optimizer,
                loss=self._request.loss,
                gpu=self._target.card,
                limit=self._target.usable_bytes,
            )
        except FitroomError:
            return None

    def _augmentation_notes(self, candidate: Candidate, found: Estimate) -> Iterator[str]:
        """Yield what the plan would gain without augmentation that keeps the step from being jitted."""
        from fitroom.planning.without_augmentation import estimate_without_augmentation

        if self._estimate is not None or candidate.variant.image_size is not None:
            return
        without = estimate_without_augmentation(
            self._request, candidate.recipe, found, self._target.card, self._tell_step
        )
        if without is None:
            return
        before, after = format_bytes(found.required_bytes), format_bytes(without.required_bytes)
        yield (
            f"With augmentation in the input pipeline (`fitroom.move_augmentation`) this recipe, jitted, needs {after} "
            f"in place of {before}{self._format_gain(candidate)}. A plan never does that by itself: random numbers "
            "change."
        )

    def _format_gain(self, candidate: Candidate) -> str:
        """Say how much faster a jitted step is predicted to be, where there are figures for both."""
        from fitroom.planning.roofline.step_time import StepTime

        step_time = StepTime.of_model(self._request.model, backend=self._backend, card=self._target.card)
        if step_time is None or self._backend != "tensorflow":
            return "; faster by a factor that was not measured on a card"
        graph, jitted = (
            step_time.seconds(
                batch_size=candidate.batch_size,
                micro_batch=candidate.micro_batch,
                precision=candidate.variant.precision,
                jit=jit,
            )
            for jit in (False, True)
        )
        return f", and is predicted to be {graph / jitted:.1f} times as fast"

    def _make_option(self, search: Search, one: PricedCandidate) -> Option:
        return Option(
            recipe=one.candidate.recipe,
            micro_batch=one.candidate.micro_batch,
            peak_bytes=one.peak_bytes,
            required_bytes=one.required_bytes,
            fits=one.fits,
            confirmed=one.confirmed,
            speed=self._make_speed(search, one.candidate),
            changes=one.changes,
        )

    def _make_speed(self, search: Search, candidate: Candidate) -> Speed | None:
        if search.factory_of(candidate).seconds is None and not candidate.timed:
            return None
        return Speed(
            seconds_per_step=candidate.seconds,
            samples_per_second=self._request.batch_size / candidate.seconds,
            method="measured" if candidate.timed else "roofline",
        )


def _add_card(error: NothingFitsError, backend: str, why_no_smaller: str | None) -> NothingFitsError:
    """Return the error with the smallest card of the catalogue that would do, and with what else was tried in vain."""
    from fitroom.cards.catalogue import all_cards

    sizes = [(Budget.of(card.name, backend=backend).bytes, card) for card in all_cards() if card.vendor == "NVIDIA"]
    enough = [(size, card) for size, card in sizes if size >= error.smallest_bytes]
    card = min(enough, key=lambda pair: pair[0])[1] if enough else None
    return NothingFitsError(
        f"{error.message} {why_no_smaller}" if why_no_smaller else error.message,
        smallest_bytes=error.smallest_bytes,
        recipe=error.recipe,
        hint=f"{error.hint}; the smallest card that does is {card.name}" if card else error.hint,
    )
