"""The largest micro-batch that fits the budget, found with few estimates.

Memory is a line in the samples at once, so two sizes give the line, it names the size to try next, and an estimate at
that size proves it. A batch is cut into even parts: what is looked for is the smallest number of them that fits.
"""

from collections.abc import Callable
from dataclasses import dataclass

from fitroom.estimating.result import Estimate

_MOST_TRIES = 6


@dataclass(frozen=True, kw_only=True)
class Cut:
    """Into how many parts a batch is cut, and what that takes."""

    samples: int
    """In the largest part."""

    estimate: Estimate


def largest_cut(batch_size: int, estimate: Callable[[int], Estimate]) -> Cut:
    """The fewest parts that fit, by `estimate(samples)`; the smallest tried where none does."""
    tried: dict[int, Estimate] = {}
    too_few, enough = 0, batch_size + 1
    parts = 1
    while parts not in (too_few, enough) and len(tried) < _MOST_TRIES:
        found = tried[parts] = estimate(-(-batch_size // parts))
        if found.fits:
            enough = parts
        else:
            too_few = parts
        parts = _next(batch_size, tried, too_few, enough)
    best = enough if enough in tried else max(tried)
    return Cut(samples=-(-batch_size // best), estimate=tried[best])


def _next(batch_size: int, tried: dict[int, Estimate], too_few: int, enough: int) -> int:
    """The number of parts that the line through the two smallest sizes names, between what failed and what fits."""
    if enough - too_few <= 1:
        return enough
    limit_bytes = next(iter(tried.values())).limit_bytes
    sizes = sorted((-(-batch_size // parts), found.required_bytes) for parts, found in tried.items())
    smallest, smallest_bytes = sizes[0]
    # With one size known: as if nothing rested. That names too many samples, and gives the second point.
    next_size, next_bytes = sizes[1] if len(sizes) > 1 else (0, 0)
    slope = (next_bytes - smallest_bytes) / (next_size - smallest) if next_size != smallest else 0.0
    samples = smallest + (limit_bytes - smallest_bytes) / slope if slope > 0 else batch_size / (2 * too_few or 1)
    wished = -(-batch_size // max(1, int(samples)))
    return min(max(wished, too_few + 1), enough - 1, batch_size)
