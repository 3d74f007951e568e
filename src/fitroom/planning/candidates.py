"""Candidates for a plan, what they take, and the rules by which one is chosen."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from fitroom.planning.option import Change
from fitroom.planning.variant import Variant
from fitroom.recipe import Effect, Recipe, Remat
from fitroom.remat.segmentation import Segment


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A variant with a micro-batch and remat segments, before any estimate."""

    variant: Variant
    batch_size: int
    micro_batch: int
    remat: str | Remat
    """The value for the recipe."""

    segments: tuple[Segment, ...] = ()
    counted_bytes: int
    """Counted by rules that hold for any framework; `MemoryModel` predicts what a framework takes."""

    seconds: float
    """The predicted time of one optimizer step. For a model whose work cannot be counted it puts the candidates in
    order and means nothing else."""

    timed: bool = False
    """Whether the seconds were measured on the device."""

    @property
    def recomputes(self) -> bool:
        """Whether anything is recomputed."""
        return self.remat != "none"

    @property
    def is_whole(self) -> bool:
        """Whether the batch is one micro-batch."""
        return self.micro_batch >= self.batch_size

    @property
    def is_even(self) -> bool:
        """Whether all micro-batches are of one size."""
        return self.batch_size % self.micro_batch == 0

    @property
    def recipe(self) -> Recipe:
        """The recipe for `fit` and `estimate`."""
        return self.variant.recipe(micro_batch=None if self.is_whole else self.micro_batch, remat=self.remat)

    @property
    def key(self) -> Any:
        """The same for two candidates with the same recipe, different otherwise."""
        return self.variant, self.micro_batch, str(self.remat) if not self.segments else self.segments


FEW_SAMPLES = 16
"""A smaller micro-batch has too few samples for good batch statistics."""

ABOUT_AS_FAST = 1.02
"""Candidates within this factor of the fastest count as equally fast: what they change then decides."""

CLEARLY_LESS = 0.88
"""A candidate of predicted memory is on the frontier if it takes less than this share of what faster ones take."""

_SEVERITY = {effect: place for place, effect in enumerate(get_args(Effect))}


@dataclass(frozen=True, kw_only=True)
class PricedCandidate:
    """A candidate with what it takes: estimated, or predicted from the estimates of others."""

    candidate: Candidate
    required_bytes: int
    peak_bytes: int
    confirmed: bool
    """Whether its memory was estimated at its real size."""

    fits: bool
    changes: tuple[Change, ...]

    @property
    def severity(self) -> int:
        """The rank of the most serious effect of its changes; 0: nothing."""
        return max((_SEVERITY[change.effect] for change in self.changes), default=0)

    @property
    def seconds(self) -> float:
        """The time of one optimizer step."""
        return self.candidate.seconds


def choose_best(found: Iterable[PricedCandidate], *, protects_statistics: bool) -> PricedCandidate | None:
    """Return the candidate to take of those that fit; None where none fits.

    Of those about as fast as the fastest it is the one that changes least, then the one with the largest micro-batch.
    """
    acceptable = _filter_acceptable(found, protects_statistics=protects_statistics)
    if not acceptable:
        return None
    fastest = min(one.seconds for one in acceptable)
    near = [one for one in acceptable if one.seconds <= ABOUT_AS_FAST * fastest]
    return min(near, key=lambda one: (one.severity, -one.candidate.micro_batch, one.seconds))


def find_faster(
    found: Iterable[PricedCandidate], chosen: PricedCandidate, *, protects_statistics: bool
) -> PricedCandidate | None:
    """Return the fastest candidate that could have been taken in place of the chosen one; None where there is none.

    Either its memory is predicted and not confirmed, or it is about as fast and the rules prefer the chosen one.
    """
    acceptable = _filter_acceptable(found, protects_statistics=protects_statistics)
    fastest = min(acceptable, key=lambda one: one.seconds, default=chosen)
    if fastest.seconds >= chosen.seconds:
        return None
    is_preferred = choose_best((fastest, chosen), protects_statistics=protects_statistics) is chosen
    return fastest if is_preferred or not fastest.confirmed else None


def has_enough_samples(candidate: Candidate) -> bool:
    """Whether the micro-batch is large enough for batch statistics."""
    return candidate.is_whole or candidate.micro_batch >= FEW_SAMPLES


def find_frontier(found: Sequence[PricedCandidate]) -> list[PricedCandidate]:
    """Return the candidates that no other beats in memory, speed and changes together, the fastest first.

    Of several that take nearly the same memory one stays; a confirmed one need not take clearly less than the others.
    """
    in_order = sorted(found, key=lambda one: (one.seconds, one.required_bytes, one.severity))
    kept: list[PricedCandidate] = []
    for one in in_order:
        less = 1.0 if one.confirmed else CLEARLY_LESS
        others = [other.required_bytes for other in kept if other.severity <= one.severity]
        if not others or one.required_bytes < less * min(others):
            kept.append(one)
    return kept


def _filter_acceptable(found: Iterable[PricedCandidate], *, protects_statistics: bool) -> list[PricedCandidate]:
    """Return those that fit; where statistics are protected, only those with enough samples if there are any."""
    fitting = [one for one in found if one.fits]
    if protects_statistics:
        return [one for one in fitting if has_enough_samples(one.candidate)] or fitting
    return fitting
