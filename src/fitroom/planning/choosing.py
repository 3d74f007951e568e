"""Which of several candidates is the one to take: rules without a framework.

Of those that fit, the fastest. A model with BatchNormalization learns worse from very small micro-batches: they are
taken only where nothing larger fits, or where speed is what was asked for. Of candidates that are about as fast, the
one that changes least about the result, and of those the one with the most samples at once.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import get_args

from fitroom.planning.candidate import Candidate
from fitroom.planning.option import Change
from fitroom.recipe import Effect

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
