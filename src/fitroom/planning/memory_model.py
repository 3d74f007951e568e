"""Predicts what a framework requires from the bytes that rules count, and learns from each estimate.

For one variant of one model the two differ by a factor that hardly depends on the micro-batch: within 1 % for Xception
from 16 to 128 samples. So the first estimate gives the factor, two give a line, and each further one improves the line
where the search needs it.
"""

from collections import defaultdict
from dataclasses import dataclass
from typing import NamedTuple

from fitroom.planning.candidates import Candidate
from fitroom.planning.variant import Variant

# Median of required over counted bytes, over the cases in benchmarks/harness/cases.py; single models need up to 1.5
# times as much. The first estimate of a search is of a small size, so these factors never decide.
_USUAL_FACTORS = {
    ("jax", "float32"): 1.0,
    ("jax", "mixed"): 1.0,
    ("tensorflow", "float32"): 1.05,
    ("tensorflow", "mixed"): 1.05,
    ("tensorflow-graph", "float32"): 1.06,
    ("tensorflow-graph", "mixed"): 1.47,
    ("torch", "float32"): 2.3,
    ("torch", "mixed"): 3.5,
}

_APART = 0.2
"""Two estimates give a line if their counted bytes differ by more than this share."""


class _Likeness(NamedTuple):
    """What makes estimates of one variant comparable."""

    recomputes: bool
    is_even: bool
    """Whether all micro-batches are of one size. On JAX a rest of another size is a second loop of the program, with
    which Xception takes up to 11 % more; on other backends it makes no difference, and this is False."""


@dataclass(frozen=True, kw_only=True)
class _Point:
    likeness: _Likeness
    counted_bytes: int
    required_bytes: int
    peak_bytes: int


class MemoryModel:
    """The estimates made so far for one model, and what they predict for other candidates."""

    def __init__(self, backend: str) -> None:
        self._backend = backend
        self._points: dict[Variant, list[_Point]] = defaultdict(list)

    def copy(self) -> "MemoryModel":
        """A copy that learns by itself."""
        other = MemoryModel(self._backend)
        for variant, points in self._points.items():
            other._points[variant] = list(points)
        return other

    def knows(self, variant: Variant, *, recomputes: bool = False) -> bool:
        """Whether a candidate of this variant was estimated; with `recomputes`, one that recomputes."""
        return any(point.likeness.recomputes or not recomputes for point in self._points[variant])

    def rests_on_one(self, candidate: Candidate) -> bool:
        """Whether the prediction for a candidate comes from a single estimate."""
        return len(self._points[candidate.variant]) == 1

    def learn(self, candidate: Candidate, *, required_bytes: int, peak_bytes: int) -> None:
        """Add the result of an estimate."""
        point = _Point(
            likeness=self._likeness(candidate),
            counted_bytes=candidate.counted_bytes,
            required_bytes=required_bytes,
            peak_bytes=peak_bytes,
        )
        self._points[candidate.variant].append(point)

    def required_bytes(self, candidate: Candidate) -> int:
        """Predict the required bytes of a candidate."""
        return self._expected(candidate.variant, candidate.counted_bytes, self._likeness(candidate))

    def peak_bytes(self, candidate: Candidate) -> int:
        """Predict the peak of a candidate."""
        near = self._near(candidate.variant, candidate.counted_bytes, self._likeness(candidate))
        share = near[0].peak_bytes / near[0].required_bytes if near else 1.0
        return int(share * self.required_bytes(candidate))

    def countable_bytes(self, variant: Variant, required_bytes: int, *, recomputes: bool) -> int:
        """Return how many counted bytes correspond to so many required ones."""
        counted_bytes = float(required_bytes)
        for _ in range(3):  # the factor depends a little on the answer itself
            expected = self._expected(variant, int(counted_bytes), _Likeness(recomputes, is_even=False))
            counted_bytes *= required_bytes / max(expected, 1)
        return int(counted_bytes)

    def _likeness(self, candidate: Candidate) -> _Likeness:
        return _Likeness(candidate.recomputes, is_even=self._backend == "jax" and candidate.is_even)

    def _expected(self, variant: Variant, counted_bytes: int, likeness: _Likeness) -> int:
        near = self._near(variant, counted_bytes, likeness)
        if not near:
            return int(counted_bytes * self._factor(variant))
        one = near[0]
        scale = counted_bytes / one.counted_bytes
        alike = one.likeness.recomputes == likeness.recomputes
        others = (point for point in near[1:] if alike and point.likeness == one.likeness)
        other = next((point for point in others if _are_apart(one, point)), None)
        if other is not None:
            slope = (other.required_bytes - one.required_bytes) / (other.counted_bytes - one.counted_bytes)
            if counted_bytes >= min(one.counted_bytes, other.counted_bytes):
                return int(one.required_bytes + slope * (counted_bytes - one.counted_bytes))
            fixed_bytes = one.required_bytes - slope * one.counted_bytes  # for sizes below both
        else:
            # What is required beyond the peak does not grow with the micro-batch, except for PyTorch's fragmentation.
            fixed_bytes = 0 if self._backend == "torch" else one.required_bytes - one.peak_bytes
        fixed_bytes = min(max(fixed_bytes, 0), one.required_bytes)
        return int(fixed_bytes + scale * (one.required_bytes - fixed_bytes))

    def _near(self, variant: Variant, counted_bytes: int, likeness: _Likeness) -> list[_Point]:
        """Sort the estimates of a variant: those that recompute as this one does first, then by loops and distance."""

        def distance(point: _Point) -> tuple[bool, bool, int]:
            return (
                point.likeness.recomputes != likeness.recomputes,
                point.likeness.is_even != likeness.is_even,
                abs(point.counted_bytes - counted_bytes),
            )

        return sorted(self._points[variant], key=distance)

    def _factor(self, variant: Variant) -> float:
        """Return the factor of a variant without estimates: the usual one, corrected by another variant's estimate."""
        usual = self._usual(variant)
        for known, points in self._points.items():
            if points:
                return usual * points[-1].required_bytes / points[-1].counted_bytes / self._usual(known)
        return usual

    def _usual(self, variant: Variant) -> float:
        mode = "-graph" if self._backend == "tensorflow" and not variant.jit else ""
        kind = "float32" if variant.precision == "float32" else "mixed"
        return _USUAL_FACTORS.get((self._backend + mode, kind), 1.0)


def _are_apart(one: _Point, other: _Point) -> bool:
    """Whether two estimates differ enough to give a line."""
    return abs(other.counted_bytes - one.counted_bytes) > _APART * one.counted_bytes
