"""The search for the best candidate: predict its memory, confirm it by an estimate, learn from that, and repeat."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fitroom.errors import NothingFitsError
from fitroom.memory.estimate import Estimate
from fitroom.planning.candidate_factory import CandidateFactory
from fitroom.planning.candidates import (
    Candidate,
    PricedCandidate,
    choose_best,
    find_faster,
    find_frontier,
    has_enough_samples,
)
from fitroom.planning.memory_model import MemoryModel
from fitroom.planning.option import Change
from fitroom.planning.target import Target
from fitroom.planning.variant import Variant
from fitroom.recipe import EFFECTS
from fitroom.units import format_bytes

MOST_ESTIMATES = 7
WORTH_AN_ESTIMATE = 1.03
"""How many times faster another candidate must be for one more estimate, once one is confirmed."""

_FIRST_SHARE = 0.5
"""The share of the budget for the first estimate: nothing is known yet but the rules, which are up to 1.5 times too
low."""

_EVEN_SHARE = 0.7
"""How much smaller the first micro-batch may be for all to be of one size: half as large taught too little of a small
convolutional net, whose plan came out 1 % slower."""

_MISSED = 1.05
"""How much of the budget is assumed to be taken by what turns out not to fit: on JAX Xception was 4 % above it."""

_UNKNOWN_SHARE = 0.94
"""The share of the budget for the first candidate that recomputes: it is predicted from those that do not."""

_PREDICTED_SHARE = 0.98
"""The share of the budget for a prediction from a single estimate: such predictions are up to 2 % too low."""

MOST_TIMED = 3
"""How many candidates are timed on the device."""

_MOST_RECOMPUTED_SIZES = 5
"""How many micro-batches are tried with remat."""

MOST_AHEAD = 1
"""How many estimates are begun before it is certain that they are needed."""

EstimateOf = Callable[[Candidate], Estimate]


@dataclass(frozen=True, kw_only=True)
class _Assumed:
    """What an estimate would say."""

    required_bytes: int
    peak_bytes: int


@dataclass(kw_only=True)
class Search:
    """A search over the candidates of several variants, for one target."""

    factories: Sequence[CandidateFactory]
    """One for each variant."""

    own: Variant
    """The user's own variant: changes are listed against it."""

    target: Target
    estimate: EstimateOf
    begin: Callable[[Candidate], None] | None = None
    """Begins the estimate that is asked for next, or one that is likely to be; None where they are not made side by
    side."""

    when_first: Callable[["Search"], None] | None = None
    """Called when the first estimate, of a smaller size, has taught how much memory the model takes."""

    memory: MemoryModel
    has_statistics: bool
    """Whether a layer computes statistics over the batch."""

    protects_statistics: bool
    """Whether a micro-batch with enough samples for batch statistics is preferred to a faster one."""

    begins_even: bool = False
    """Whether the first estimate, to learn from, is to be of a micro-batch that divides the batch: where a rest of
    another size is a second program to trace and compile."""

    def __post_init__(self) -> None:
        self.estimates: dict[Any, Any] = {}
        """By candidate; an `Estimate` each."""

        self._tried: dict[Any, Candidate] = {}
        self._to_learn: set[Any] = set()

    def run(self) -> PricedCandidate:
        """Return the best candidate, confirmed by an estimate. Raises NothingFitsError where nothing fits."""
        for _ in range(MOST_ESTIMATES):
            candidate = self._find_next()
            if candidate is None:
                break
            self._confirm(candidate)
            if self.when_first and len(self.estimates) == 1 and candidate.key in self._to_learn:
                self.when_first(self)
        return self._choose_confirmed() or self._confirm_smallest()

    def count_ahead(self) -> int:
        """Return how many more estimates there will be, if each turns out as predicted."""
        search, count = self, 0
        while count < MOST_ESTIMATES and (candidate := search._find_next()) is not None:
            search, count = search._assume(candidate), count + 1
        return count

    def has_enough_for_statistics(self) -> bool:
        """Whether any micro-batch with enough samples fits, by an estimate of the one that takes least."""
        tightest = (factory.tightest(size) for factory in self.factories for size in factory.sizes())
        enough = list(filter(has_enough_samples, tightest))
        if not enough:
            return False
        candidate = min(enough, key=self.memory.required_bytes)
        self._confirm(candidate)
        return self.price(candidate).fits

    def time_fastest(self, seconds_of: Callable[[Candidate], float]) -> PricedCandidate:
        """Time the candidates predicted to be fastest, and return the best by measured seconds. Call it after `run`."""
        for _ in range(MOST_TIMED):
            wanted = choose_best(
                (one for one in self._price_all(wide=False) if not one.candidate.timed),
                protects_statistics=self.protects_statistics,
            )
            if wanted is None:
                break
            if not wanted.confirmed:
                self._confirm(wanted.candidate)
            if self.price(wanted.candidate).fits:
                measured = replace(wanted.candidate, timed=True, seconds=seconds_of(wanted.candidate))
                self._tried[measured.key] = measured
        timed = [self.price(candidate) for candidate in self._tried.values() if candidate.timed]
        found = choose_best(timed, protects_statistics=self.protects_statistics)
        assert found is not None, "what `run` found is among them"
        return found

    def guess(self) -> PricedCandidate | None:
        """Return the best candidate by what was learnt so far, unconfirmed; None where nothing fits."""
        return self._predict_best()

    def find_frontier(self, chosen: PricedCandidate) -> list[PricedCandidate]:
        """Return all candidates worth considering, whether they fit or not, the fastest first.

        A reader must find there what the plan mentions: the chosen candidate, a faster one that was not taken, and the
        first fallback. They replace others that read the same, with the same number of segments.
        """
        fallbacks = (self.price(candidate) for candidate in self.find_fallbacks(chosen.candidate)[:1])
        mentioned = {one.candidate.key: one for one in (chosen, self.find_faster(chosen), *fallbacks) if one}
        read = {_as_read(one.candidate) for one in mentioned.values()}
        found = [
            one
            for one in find_frontier(self._price_all(wide=True))
            if one.candidate.key not in mentioned and (one.confirmed or _as_read(one.candidate) not in read)
        ]
        return sorted([*found, *mentioned.values()], key=lambda one: one.seconds)

    def find_faster(self, chosen: PricedCandidate) -> PricedCandidate | None:
        """Return a faster candidate that could have been taken in place of the chosen one; None where there is none."""
        found = self._price_all(wide=False)
        if chosen.candidate.timed:  # measured seconds cannot be compared with predicted ones
            found = [one for one in found if one.candidate.timed]
        elif any(factory.seconds is None for factory in self.factories):
            return None  # these put recipes in order, and do not say how far apart they are
        return find_faster(found, chosen, protects_statistics=self.protects_statistics)

    def find_fallbacks(self, chosen: Candidate) -> list[Candidate]:
        """Return what to continue with if memory runs out anyway: more recomputed, then a smaller micro-batch."""
        factory = self.factory_of(chosen)
        sizes = [chosen.micro_batch, *([-(-chosen.micro_batch // 2)] if factory.may_split else [])]
        wished = [make(size) for size in sizes for make in (factory.blocks, factory.tightest)]
        found: list[Candidate] = []
        least_bytes = self.memory.required_bytes(chosen)
        for candidate in wished:
            if (required_bytes := self.memory.required_bytes(candidate)) < 0.95 * least_bytes:
                found.append(candidate)
                least_bytes = required_bytes
        return found

    def factory_of(self, candidate: Candidate) -> CandidateFactory:
        """The factory of a candidate's variant."""
        return next(one for one in self.factories if one.variant == candidate.variant)

    def price(self, candidate: Candidate) -> PricedCandidate:
        """Return a candidate with what it takes, estimated or predicted."""
        known = self.estimates.get(candidate.key)
        required_bytes = known.required_bytes if known else self.memory.required_bytes(candidate)
        return PricedCandidate(
            candidate=candidate,
            required_bytes=required_bytes,
            peak_bytes=known.peak_bytes if known else self.memory.peak_bytes(candidate),
            confirmed=known is not None,
            fits=required_bytes <= self.target.usable_bytes,
            changes=self._changes(candidate),
        )

    def _find_next(self) -> Candidate | None:
        """Return the candidate to estimate next; None where one that is confirmed is good enough, or nothing fits."""
        wanted = self._predict_best()
        if wanted is None or wanted.confirmed or not self._is_worth_it(wanted):
            return None
        first = self._find_first_to_estimate(wanted.candidate)
        if first is None:
            return wanted.candidate
        self._to_learn.add(first.key)
        return first

    def _find_likely(self, candidate: Candidate) -> list[Candidate]:
        """Return what is likely to be estimated after a candidate.

        After the first estimate, of a smaller size, it is what that leads to if it is as predicted. After one of a real
        size there is another only where that does not fit. It is begun in case while the prediction rests on a single
        estimate: the compiler leaves a core free.
        """
        if candidate.key not in self._to_learn:
            if not self.memory.rests_on_one(candidate):
                return []
            instead = self._assume(candidate, fits=False)._find_next()
            return [] if instead is None or instead.recomputes else [instead]
        found: list[Candidate] = []
        search = self
        while candidate.key in search._to_learn and not search.memory.knows(candidate.variant):
            search = search._assume(candidate)
            following = search._find_next()
            if following is None or len(found) == MOST_AHEAD:
                break
            if not following.recomputes:  # else which segments depends on what is learnt
                found.append(following)
            candidate = following
        return found

    def _assume(self, candidate: Candidate, *, fits: bool = True) -> "Search":
        """Return a copy of the search in which a candidate was estimated: as predicted, or as too large."""
        other = replace(self, memory=self.memory.copy(), begin=None, when_first=None)
        other.estimates = dict(self.estimates)
        other._tried, other._to_learn = dict(self._tried), set(self._to_learn)
        required_bytes, peak_bytes = self.memory.required_bytes(candidate), self.memory.peak_bytes(candidate)
        if not fits:
            required_bytes = max(required_bytes, int(_MISSED * self.target.usable_bytes))
        other._learn(candidate, _Assumed(required_bytes=required_bytes, peak_bytes=peak_bytes))
        return other

    def _choose_confirmed(self) -> PricedCandidate | None:
        return choose_best(map(self.price, self._tried.values()), protects_statistics=self.protects_statistics)

    def _predict_best(self) -> PricedCandidate | None:
        likely = filter(self._is_likely, self._price_all(wide=False))
        return choose_best(likely, protects_statistics=self.protects_statistics)

    def _is_likely(self, one: PricedCandidate) -> bool:
        """Whether a candidate that is predicted to fit most likely does."""
        if one.confirmed or not self.memory.rests_on_one(one.candidate):
            return True
        return one.required_bytes <= _PREDICTED_SHARE * self.target.usable_bytes

    def _is_worth_it(self, wanted: PricedCandidate) -> bool:
        """Whether a candidate deserves an estimate.

        It does where it is clearly faster than all confirmed ones, or alone has enough samples for batch statistics.
        """
        confirmed = self._choose_confirmed()
        if confirmed is None or confirmed.candidate.key in self._to_learn:
            return True
        if has_enough_samples(wanted.candidate) > has_enough_samples(confirmed.candidate):
            return True
        return confirmed.seconds > WORTH_AN_ESTIMATE * wanted.seconds

    def _find_first_to_estimate(self, wanted: Candidate) -> Candidate | None:
        """Return a smaller candidate to learn from; None where its variant is known already or `wanted` is small."""
        if self.memory.knows(wanted.variant):
            return None
        usable_bytes = int(_FIRST_SHARE * self.target.usable_bytes)
        if self.memory.required_bytes(wanted) <= usable_bytes:
            return None
        factory = self.factory_of(wanted)
        sizes = factory.sizes()
        small = [one for one in map(factory.plain, sizes) if self.memory.required_bytes(one) <= usable_bytes]
        if not small:
            return factory.plain(sizes[-1])
        even = [one for one in small if one.is_even and _EVEN_SHARE * small[0].micro_batch <= one.micro_batch]
        return even[0] if even and self.begins_even else small[0]

    def _confirm(self, candidate: Candidate) -> None:
        """Estimate a candidate at its real size."""
        if self.begin:
            self.begin(candidate)
            for likely in self._find_likely(candidate):  # while the first is being compiled
                self.begin(likely)
        self._learn(candidate, self.estimate(candidate))

    def _learn(self, candidate: Candidate, found: Estimate | _Assumed) -> None:
        self.estimates[candidate.key] = found
        self._tried[candidate.key] = candidate
        self.memory.learn(candidate, required_bytes=found.required_bytes, peak_bytes=found.peak_bytes)

    def _confirm_smallest(self) -> PricedCandidate:
        """Return the candidate that takes least of all. Raises NothingFitsError where it does not fit."""
        smallest = [factory.tightest(factory.sizes()[-1]) for factory in self.factories]
        candidate = min(smallest, key=self.memory.required_bytes)
        if candidate.key not in self.estimates:
            self._confirm(candidate)
        found = self.price(candidate)
        if not found.fits:
            smallest_bytes = int(found.required_bytes / (1 - self.target.reserve_bytes / self.target.budget.bytes)) + 1
            recomputed = " and the most recomputed" if candidate.recomputes else ""
            raise NothingFitsError(
                f"No recipe brings a batch of {candidate.batch_size} under {format_bytes(self.target.budget.bytes)}: "
                f"with micro-batch {candidate.micro_batch}{recomputed} it needs {format_bytes(found.required_bytes)}.",
                smallest_bytes=smallest_bytes,
                recipe=candidate.recipe,
                hint=f"the smallest budget that does is {format_bytes(smallest_bytes)}",
            )
        return found

    def _price_all(self, *, wide: bool) -> list[PricedCandidate]:
        found: dict[Any, Candidate] = {}
        for factory in self.factories:
            found |= {candidate.key: candidate for candidate in self._make_candidates(factory, wide=wide)}
        found |= self._tried
        return [self.price(candidate) for candidate in found.values()]

    def _make_candidates(self, factory: CandidateFactory, *, wide: bool) -> list[Candidate]:
        """Return all micro-batches with nothing recomputed, and the largest of those that fit only with remat.

        With `wide` also some that are not worth an estimate, for the frontier.
        """
        sizes = factory.sizes()
        plain = [factory.plain(size) for size in sizes]
        if not factory.can_recompute:
            return plain
        known = self.memory.knows(factory.variant, recomputes=True)
        usable_bytes = self.target.usable_bytes if known else int(_UNKNOWN_SHARE * self.target.usable_bytes)
        counted_bytes = self.memory.countable_bytes(factory.variant, usable_bytes, recomputes=True)
        too_large = [size for size, one in zip(sizes, plain, strict=True) if not self.price(one).fits]
        fitting = [size for size in too_large if self.price(factory.tightest(size)).fits][:_MOST_RECOMPUTED_SIZES]
        within = [factory.recomputed(size, counted_bytes) for size in fitting]
        blocks = [factory.blocks(size) for size in ({sizes[0], *fitting} if wide else fitting)]
        tightest = [factory.tightest(size) for size in fitting[:1] or (sizes[:1] if wide else [])]
        return [*plain, *(one for one in within if one is not None), *blocks, *tightest]

    def _changes(self, candidate: Candidate) -> tuple[Change, ...]:
        changes = list(candidate.variant.changes_from(self.own))
        if candidate.recomputes:
            changes.append(Change(knob="remat", before="none", after=str(candidate.remat), effect=EFFECTS["remat"]))
        if not candidate.is_whole:
            changes.append(
                Change(
                    knob="micro_batch",
                    before=str(candidate.batch_size),
                    after=str(candidate.micro_batch),
                    effect=EFFECTS["micro_batch"] if self.has_statistics else "nothing",
                )
            )
        return tuple(changes)


def _as_read(candidate: Candidate) -> tuple[Variant, int, str]:
    """Return what a reader sees of a candidate: segments are counted, not named."""
    return candidate.variant, candidate.micro_batch, str(candidate.remat)
