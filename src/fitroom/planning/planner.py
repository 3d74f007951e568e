"""Carries out a plan request: a search over the variants of each stage, and the plan made of what it found."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from fitroom.budget import Budget
from fitroom.errors import NothingFitsError
from fitroom.estimating.estimate import estimate
from fitroom.keras_model.freezing import freeze_temporarily
from fitroom.memory.estimate import Estimate
from fitroom.memory.step import NO_LIMIT_BYTES
from fitroom.planning.candidate_factory import CandidateFactory
from fitroom.planning.candidates import Candidate, PricedCandidate, has_enough_samples
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


class Planner:
    """Finds the plan for one request and one target. What it learns there helps to predict plans for other targets."""

    def __init__(self, request: PlanRequest, target: Target, say: Say, estimate: EstimateOf | None = None) -> None:
        from fitroom.backends.choose import current_backend
        from fitroom.keras_model.objective import Objective
        from fitroom.keras_model.state import has_batch_statistics

        self._request, self._target, self._say = request, target, say
        self._estimate = estimate or self._estimate_on_target
        self._backend = current_backend().name
        self._stages = VariantStages(request, self._backend)
        self._has_statistics = has_batch_statistics(request.model)
        objective = Objective(request.model)
        self._why_whole = objective.why_whole()
        self._untried_losses = objective.untried_losses if request.loss is None else []
        self._remat_choices: dict[Any, RematChoices | None] = {}
        self._memory = MemoryModel(self._backend)

    def plan(self, *, probe: bool = False) -> Plan:
        """Return the best plan of the first stage that has one; stages that change the task come last.

        With `probe` the best few candidates are timed on the device in this machine, and the times decide.
        """
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
            raise _add_card(last, self._backend, why_no_smaller)
        return replace(best, notes=(*best.notes, why_no_smaller)) if why_no_smaller else best

    def guess(self, target: Target) -> Option | None:
        """Predict the choice for another target from the estimates made so far; None where nothing fits."""
        for variants in self._stages.list_stages(target.card):
            search = self._make_search(variants, target)
            if found := search.guess():
                return self._make_option(search, found)
        return None

    def _make_search(self, variants: list[Variant], target: Target) -> Search:
        return Search(
            factories=[self._make_factory(variant, target) for variant in variants],
            own=self._stages.own,
            target=target,
            estimate=self._estimate,
            memory=self._memory,
            has_statistics=self._has_statistics,
            protects_statistics=self._has_statistics and self._request.prefer != "speed",
        )

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

    def _estimate_on_target(self, candidate: Candidate) -> Estimate:
        recomputed = f", {candidate.remat} recomputed" if candidate.recomputes else ""
        self._say(f"estimating {_format_micro_batch(candidate)} in {candidate.variant.words}{recomputed}")
        found = estimate(
            self._stages.model_at(candidate.variant.image_size),
            self._request.batch_size,
            recipe=replace(candidate.recipe, image_size=None),
            optimizer=None if candidate.variant.optimizer else self._request.optimizer,
            loss=self._request.loss,
            gpu=self._target.card,
            limit=NO_LIMIT_BYTES,
        )
        return replace(found, limit_bytes=self._target.budget.bytes)

    def _time_on_device(self, candidate: Candidate) -> float:
        from fitroom.planning.probe import time_step

        self._say(f"timing {_format_micro_batch(candidate)} in {candidate.variant.words}")
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
            notes=(*self._target.notes, *self._notes(candidate), *found.notes),
        )

    def _notes(self, candidate: Candidate) -> Iterator[str]:
        """Yield a sentence for each thing that could not be tried."""
        yield from self._stages.jit_notes()
        if self._why_whole:
            yield f"The batch cannot be split into micro-batches: {self._why_whole}."
        if self._untried_losses and not candidate.is_whole:
            names = ", ".join(map(repr, self._untried_losses))
            yield (
                f"Whether the loss {names} can be computed in micro-batches is tried when training begins: "
                "one that couples the samples of a batch cannot."
            )
        yield from self._stages.precision_notes()

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


def _format_micro_batch(candidate: Candidate) -> str:
    return (
        f"the whole batch of {candidate.batch_size}" if candidate.is_whole else f"micro-batch {candidate.micro_batch}"
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
