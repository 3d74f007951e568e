"""A recipe on its way into a plan: what the rules count for it, before any estimate."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from fitroom.planning.option import Change
from fitroom.planning.variant import Variant
from fitroom.recipe import Effect, Recipe, Remat
from fitroom.remat.segmentation import Segment


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """One variant with a micro-batch and segments."""

    variant: Variant
    batch_size: int
    micro_batch: int
    remat: str | Remat
    """As a recipe says it."""

    segments: tuple[Segment, ...] = ()
    counted_bytes: int
    """By rules that hold for any framework; `Memory` knows what a framework makes of them."""

    seconds: float
    """Of one optimizer step, by the roofline of the card; of a model whose work cannot be counted, good for comparing
    its recipes and nothing else."""

    timed: bool = False
    """Whether the seconds were measured on the device."""

    @property
    def recomputes(self) -> bool:
        """Whether anything is computed again."""
        return self.remat != "none"

    @property
    def is_whole(self) -> bool:
        """Whether the batch goes to the device at once."""
        return self.micro_batch >= self.batch_size

    @property
    def recipe(self) -> Recipe:
        """For `fit` and `estimate`."""
        return self.variant.recipe(micro_batch=None if self.is_whole else self.micro_batch, remat=self.remat)

    @property
    def key(self) -> Any:
        """What tells it from others."""
        return self.variant, self.micro_batch, str(self.remat) if not self.segments else self.segments


FEW_SAMPLES = 16
"""Fewer at once are few for statistics over a batch."""

ABOUT_AS_FAST = 1.02

CLEARLY_LESS = 0.88
"""Of the memory: what the next on the frontier takes of the one before it."""

_SEVERITY = {effect: place for place, effect in enumerate(get_args(Effect))}


@dataclass(frozen=True, kw_only=True)
class Priced:
    """A candidate with what it takes, as far as that is known."""

    candidate: Candidate
    required_bytes: int
    peak_bytes: int
    confirmed: bool
    fits: bool
    changes: tuple[Change, ...]

    @property
    def severity(self) -> int:
        """Of the gravest change; 0: nothing."""
        return max((_SEVERITY[change.effect] for change in self.changes), default=0)

    @property
    def seconds(self) -> float:
        """Of one optimizer step."""
        return self.candidate.seconds


def best_of(found: Iterable[Priced], *, spares_statistics: bool) -> Priced | None:
    """The one to take of those that fit."""
    acceptable = _acceptable(found, spares_statistics=spares_statistics)
    if not acceptable:
        return None
    fastest = min(one.seconds for one in acceptable)
    near = [one for one in acceptable if one.seconds <= ABOUT_AS_FAST * fastest]
    return min(near, key=lambda one: (one.severity, -one.candidate.micro_batch, one.seconds))


def passed_over(found: Iterable[Priced], chosen: Priced, *, spares_statistics: bool) -> Priced | None:
    """The fastest that could have been taken, where it is faster than the chosen one.

    It was guessed to fit and not proven, unless the chosen one is about as fast and was preferred to it.
    """
    acceptable = _acceptable(found, spares_statistics=spares_statistics)
    fastest = min(acceptable, key=lambda one: one.seconds, default=chosen)
    if fastest.seconds >= chosen.seconds:
        return None
    is_preferred = best_of((fastest, chosen), spares_statistics=spares_statistics) is chosen
    return fastest if is_preferred or not fastest.confirmed else None


def has_enough(candidate: Candidate) -> bool:
    """Whether there are enough samples at once for statistics over them."""
    return candidate.is_whole or candidate.micro_batch >= FEW_SAMPLES


def frontier_of(found: Sequence[Priced]) -> list[Priced]:
    """Those that no other beats in memory, speed and what it changes all at once, the fastest first.

    Of many that are nearly alike one is enough; what was estimated at its real size always stays.
    """
    in_order = sorted(found, key=lambda one: (one.seconds, one.required_bytes, one.severity))
    kept: list[Priced] = []
    for one in in_order:
        less = 1.0 if one.confirmed else CLEARLY_LESS
        others = [other.required_bytes for other in kept if other.severity <= one.severity]
        if not others or one.required_bytes < less * min(others):
            kept.append(one)
    return kept


def _acceptable(found: Iterable[Priced], *, spares_statistics: bool) -> list[Priced]:
    """Those that fit; of them those with enough samples at once, where that matters and there are any."""
    fitting = [one for one in found if one.fits]
    if spares_statistics:
        return [one for one in fitting if has_enough(one.candidate)] or fitting
    return fitting
