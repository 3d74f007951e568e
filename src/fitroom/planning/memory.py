"""What a framework makes of the bytes that rules count, learnt from the estimates made so far.

For one variant of one model the two differ by a factor that hardly depends on the samples at once: within 1 % for
Xception from 16 to 128 samples. So the first estimate gives the factor, two give a line, and each further one makes the
line better where the search is looking.
"""

from collections import defaultdict
from dataclasses import dataclass

from fitroom.planning.candidates import Candidate
from fitroom.planning.variant import Variant

# Median of the required bytes over the counted ones, of the cases in benchmarks/harness/cases.py; single models are up
# to 1.5 times as much. What comes first is an estimate of a small size, so that these never decide.
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


@dataclass(frozen=True, kw_only=True)
class _Point:
    recomputes: bool
    counted_bytes: int
    required_bytes: int
    peak_bytes: int


class Memory:
    """The estimates made so far, and what they say of others."""

    def __init__(self, backend: str) -> None:
        self._backend = backend
        self._points: dict[Variant, list[_Point]] = defaultdict(list)

    def knows(self, variant: Variant, *, recomputes: bool = False) -> bool:
        """Whether anything was estimated in this variant; with `recomputes`, anything that is recomputed."""
        return any(point.recomputes or not recomputes for point in self._points[variant])

    def rests_on_one(self, candidate: Candidate) -> bool:
        """Whether what is said of a candidate comes from a single estimate."""
        return len(self._points[candidate.variant]) == 1

    def learn(self, candidate: Candidate, *, required_bytes: int, peak_bytes: int) -> None:
        """What an estimate said."""
        point = _Point(
            recomputes=candidate.recomputes,
            counted_bytes=candidate.counted_bytes,
            required_bytes=required_bytes,
            peak_bytes=peak_bytes,
        )
        self._points[candidate.variant].append(point)

    def required_bytes(self, candidate: Candidate) -> int:
        """What an estimate would say, most likely."""
        return self._expected(candidate.variant, candidate.counted_bytes, candidate.recomputes)

    def peak_bytes(self, candidate: Candidate) -> int:
        """Likewise for the peak."""
        near = self._near(candidate.variant, candidate.counted_bytes, candidate.recomputes)
        share = near[0].peak_bytes / near[0].required_bytes if near else 1.0
        return int(share * self.required_bytes(candidate))

    def countable_bytes(self, variant: Variant, required_bytes: int, *, recomputes: bool) -> int:
        """How many bytes by the rules come to so many required ones."""
        counted_bytes = float(required_bytes)
        for _ in range(3):  # the factor at the answer; it changes little
            expected = self._expected(variant, int(counted_bytes), recomputes)
            counted_bytes *= required_bytes / max(expected, 1)
        return int(counted_bytes)

    def _expected(self, variant: Variant, counted_bytes: int, recomputes: bool) -> int:
        near = self._near(variant, counted_bytes, recomputes)
        if not near:
            return int(counted_bytes * self._factor(variant))
        one = near[0]
        scale = counted_bytes / one.counted_bytes
        others = (point for point in near[1:] if point.recomputes == one.recomputes == recomputes)
        other = next((point for point in others if _are_apart(one, point)), None)
        if other is not None:
            slope = (other.required_bytes - one.required_bytes) / (other.counted_bytes - one.counted_bytes)
            if counted_bytes >= min(one.counted_bytes, other.counted_bytes):
                return int(one.required_bytes + slope * (counted_bytes - one.counted_bytes))
            fixed_bytes = one.required_bytes - slope * one.counted_bytes  # for sizes below both
        else:
            # What is needed beside the peak does not grow with the samples, but for PyTorch's gaps between blocks.
            fixed_bytes = 0 if self._backend == "torch" else one.required_bytes - one.peak_bytes
        fixed_bytes = min(max(fixed_bytes, 0), one.required_bytes)
        return int(fixed_bytes + scale * (one.required_bytes - fixed_bytes))

    def _near(self, variant: Variant, counted_bytes: int, recomputes: bool) -> list[_Point]:
        """The points of a variant: those that recompute if this does, the nearest first."""
        return sorted(
            self._points[variant],
            key=lambda point: (point.recomputes != recomputes, abs(point.counted_bytes - counted_bytes)),
        )

    def _factor(self, variant: Variant) -> float:
        """For a variant that was never estimated: as others of this model differ from what is usual."""
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
    """Whether a line through the two means anything."""
    return abs(other.counted_bytes - one.counted_bytes) > _APART * one.counted_bytes
