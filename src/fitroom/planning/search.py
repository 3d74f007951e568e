"""The search: guess by rules, prove by an estimate, learn from it, until the best guess is proven."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fitroom.errors import NothingFitsError
from fitroom.memory.estimate import Estimate
from fitroom.planning.candidates import Candidate, Priced, best_of, frontier_of, has_enough, passed_over
from fitroom.planning.memory import Memory
from fitroom.planning.option import Change
from fitroom.planning.room import Room
from fitroom.planning.subject import Subject
from fitroom.planning.variant import Variant
from fitroom.recipe import EFFECTS
from fitroom.units import format_bytes

MOST_ESTIMATES = 7
WORTH_AN_ESTIMATE = 1.03
"""How many times faster another candidate must be for one more estimate, once one is proven."""

_FIRST_PART = 0.5
"""Of the budget: what the first estimate may take by the rules, which are up to 1.5 times too low."""

_UNKNOWN_PART = 0.94
"""Of the budget: what the first that recomputes may take, by what is known of those that do not."""

_GUESSED_PART = 0.98
"""Of the budget: what a guess from a single estimate may take, such guesses being up to 2 % too low."""

MOST_TIMED = 3
_MOST_RECOMPUTED_SIZES = 5

EstimateOf = Callable[[Candidate], Estimate]


@dataclass(kw_only=True)
class Search:
    """Over all subjects, for one room."""

    subjects: Sequence[Subject]
    own: Variant
    """What the user has: changes are against it."""

    room: Room
    estimate: EstimateOf
    memory: Memory
    has_statistics: bool
    """Whether a layer looks at the batch as a whole."""

    spares_statistics: bool

    def __post_init__(self) -> None:
        self.estimates: dict[Any, Estimate] = {}
        self._tried: dict[Any, Candidate] = {}
        self._to_learn: set[Any] = set()

    def run(self) -> Priced:
        """The best candidate, proven. Raises NothingFitsError where there is none."""
        for _ in range(MOST_ESTIMATES):
            wanted = self._wanted()
            if wanted is None or wanted.confirmed or not self._is_worth_it(wanted):
                break
            first = self._first(wanted.candidate)
            if first is not None:
                self._to_learn.add(first.key)
            self._prove(first or wanted.candidate)
        return self._proven() or self._last_resort()

    def has_enough_for_statistics(self) -> bool:
        """Whether anything fits with enough samples at once, by an estimate of the smallest of those."""
        tightest = (subject.tightest(size) for subject in self.subjects for size in subject.sizes())
        enough = list(filter(has_enough, tightest))
        if not enough:
            return False
        candidate = min(enough, key=self.memory.required_bytes)
        self._prove(candidate)
        return self.priced(candidate).fits

    def timed(self, seconds_of: Callable[[Candidate], float]) -> Priced:
        """After `run`: the best by the seconds that were measured of the few that should be fastest."""
        for _ in range(MOST_TIMED):
            wanted = best_of(
                (one for one in self._priced(wide=False) if not one.candidate.timed),
                spares_statistics=self.spares_statistics,
            )
            if wanted is None:
                break
            if not wanted.confirmed:
                self._prove(wanted.candidate)
            if self.priced(wanted.candidate).fits:
                measured = replace(wanted.candidate, timed=True, seconds=seconds_of(wanted.candidate))
                self._tried[measured.key] = measured
        timed = [self.priced(candidate) for candidate in self._tried.values() if candidate.timed]
        found = best_of(timed, spares_statistics=self.spares_statistics)
        assert found is not None, "what `run` found is among them"
        return found

    def guess(self) -> Priced | None:
        """The best candidate by what was learnt so far, unproven; None where nothing fits."""
        return self._wanted()

    def frontier(self, chosen: Priced) -> list[Priced]:
        """All candidates worth having, whether they fit or not.

        The chosen one is among them, one that was passed over for it, and the one to go on with if memory runs out:
        what a plan speaks of can be looked up. Of two that read alike, with as many segments, that one stays.
        """
        next_ones = (self.priced(candidate) for candidate in self.smaller_than(chosen.candidate)[:1])
        spoken_of = {one.candidate.key: one for one in (chosen, self.passed_over(chosen), *next_ones) if one}
        read = {_as_read(one.candidate) for one in spoken_of.values()}
        found = [
            one
            for one in frontier_of(self._priced(wide=True))
            if one.candidate.key not in spoken_of and (one.confirmed or _as_read(one.candidate) not in read)
        ]
        return sorted([*found, *spoken_of.values()], key=lambda one: one.seconds)

    def passed_over(self, chosen: Priced) -> Priced | None:
        """A faster one in whose place the chosen one was taken; None where there is none."""
        found = self._priced(wide=False)
        if chosen.candidate.timed:  # seconds of the device are not to be compared with those of a roofline
            found = [one for one in found if one.candidate.timed]
        elif any(subject.seconds is None for subject in self.subjects):
            return None  # these put recipes in order, and do not say how far apart they are
        return passed_over(found, chosen, spares_statistics=self.spares_statistics)

    def smaller_than(self, chosen: Candidate) -> list[Candidate]:
        """What to go on with where memory runs out all the same: more recomputed, then fewer samples at once."""
        subject = next(one for one in self.subjects if one.variant == chosen.variant)
        sizes = [chosen.micro_batch, *([-(-chosen.micro_batch // 2)] if subject.may_cut else [])]
        wished = [make(size) for size in sizes for make in (subject.blocks, subject.tightest)]
        found: list[Candidate] = []
        least_bytes = self.memory.required_bytes(chosen)
        for candidate in wished:
            if (required_bytes := self.memory.required_bytes(candidate)) < 0.95 * least_bytes:
                found.append(candidate)
                least_bytes = required_bytes
        return found

    def priced(self, candidate: Candidate) -> Priced:
        """A candidate with what it takes."""
        known = self.estimates.get(candidate.key)
        required_bytes = known.required_bytes if known else self.memory.required_bytes(candidate)
        return Priced(
            candidate=candidate,
            required_bytes=required_bytes,
            peak_bytes=known.peak_bytes if known else self.memory.peak_bytes(candidate),
            confirmed=known is not None,
            fits=required_bytes <= self.room.usable_bytes,
            changes=self._changes(candidate),
        )

    def _proven(self) -> Priced | None:
        return best_of(map(self.priced, self._tried.values()), spares_statistics=self.spares_statistics)

    def _wanted(self) -> Priced | None:
        likely = filter(self._is_likely, self._priced(wide=False))
        return best_of(likely, spares_statistics=self.spares_statistics)

    def _is_likely(self, one: Priced) -> bool:
        """Whether an estimate would most likely say that it fits, too."""
        if one.confirmed or not self.memory.rests_on_one(one.candidate):
            return True
        return one.required_bytes <= _GUESSED_PART * self.room.usable_bytes

    def _is_worth_it(self, wanted: Priced) -> bool:
        """Whether to estimate once more: for what is clearly faster than all that is proven, or spares statistics."""
        proven = self._proven()
        if proven is None or proven.candidate.key in self._to_learn:
            return True
        if has_enough(wanted.candidate) > has_enough(proven.candidate):
            return True
        return proven.seconds > WORTH_AN_ESTIMATE * wanted.seconds

    def _first(self, wanted: Candidate) -> Candidate | None:
        """Before anything is known of a variant: a size that surely fits, to learn from."""
        if self.memory.knows(wanted.variant):
            return None
        usable_bytes = int(_FIRST_PART * self.room.usable_bytes)
        if self.memory.required_bytes(wanted) <= usable_bytes:
            return None
        subject = next(one for one in self.subjects if one.variant == wanted.variant)
        sizes = subject.sizes()
        small = (subject.plain(size) for size in sizes)
        return next((one for one in small if self.memory.required_bytes(one) <= usable_bytes), subject.plain(sizes[-1]))

    def _prove(self, candidate: Candidate) -> None:
        found = self.estimate(candidate)
        self.estimates[candidate.key] = found
        self._tried[candidate.key] = candidate
        self.memory.learn(candidate, required_bytes=found.required_bytes, peak_bytes=found.peak_bytes)

    def _last_resort(self) -> Priced:
        """The smallest that can be done at all."""
        smallest = [subject.tightest(subject.sizes()[-1]) for subject in self.subjects]
        candidate = min(smallest, key=self.memory.required_bytes)
        if candidate.key not in self.estimates:
            self._prove(candidate)
        found = self.priced(candidate)
        if not found.fits:
            smallest_bytes = int(found.required_bytes / (1 - self.room.reserve_bytes / self.room.budget.bytes)) + 1
            recomputed = " and the most recomputed" if candidate.recomputes else ""
            raise NothingFitsError(
                f"No recipe brings a batch of {candidate.batch_size} under {format_bytes(self.room.budget.bytes)}: "
                f"with {candidate.micro_batch} at once{recomputed} it needs {format_bytes(found.required_bytes)}.",
                smallest_bytes=smallest_bytes,
                recipe=candidate.recipe,
                hint=f"the smallest budget that does is {format_bytes(smallest_bytes)}",
            )
        return found

    def _priced(self, *, wide: bool) -> list[Priced]:
        found: dict[Any, Candidate] = {}
        for subject in self.subjects:
            found |= {candidate.key: candidate for candidate in self._offered(subject, wide=wide)}
        found |= self._tried
        return [self.priced(candidate) for candidate in found.values()]

    def _offered(self, subject: Subject, *, wide: bool) -> list[Candidate]:
        """All sizes with nothing recomputed; of those that do not fit so, the largest that do with some recomputed."""
        sizes = subject.sizes()
        plain = [subject.plain(size) for size in sizes]
        if not subject.can_recompute:
            return plain
        known = self.memory.knows(subject.variant, recomputes=True)
        usable_bytes = self.room.usable_bytes if known else int(_UNKNOWN_PART * self.room.usable_bytes)
        room_bytes = self.memory.countable_bytes(subject.variant, usable_bytes, recomputes=True)
        too_large = [size for size, one in zip(sizes, plain, strict=True) if not self.priced(one).fits]
        fitting = [size for size in too_large if self.priced(subject.tightest(size)).fits][:_MOST_RECOMPUTED_SIZES]
        within = [subject.recomputed(size, room_bytes) for size in fitting]
        blocks = [subject.blocks(size) for size in ({sizes[0], *fitting} if wide else fitting)]
        tightest = [subject.tightest(size) for size in fitting[:1] or (sizes[:1] if wide else [])]
        return [*plain, *(one for one in within if one is not None), *blocks, *tightest]

    def _changes(self, candidate: Candidate) -> tuple[Change, ...]:
        changes = list(candidate.variant.changes_from(self.own))
        if candidate.recomputes:
            changes.append(Change(knob="remat", before="none", after=str(candidate.remat), effect=EFFECTS["remat"]))
        if not candidate.is_whole:
            changes.append(
                Change(
                    knob="micro_batch",
                    before=f"{candidate.batch_size} at once",
                    after=f"{candidate.micro_batch} at once",
                    effect=EFFECTS["micro_batch"] if self.has_statistics else "nothing",
                )
            )
        return tuple(changes)


def _as_read(candidate: Candidate) -> tuple[Variant, int, str]:
    """What a reader can tell two candidates apart by: segments are counted, not named."""
    return candidate.variant, candidate.micro_batch, str(candidate.remat)
