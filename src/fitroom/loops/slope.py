"""How fast a series of readings grows, by the median of the slopes between all pairs of readings (Theil and Sen).

One reading that is far off, such as a cache that fills once, moves the median little. The interval comes from the
distribution of ranks (Kendall's tau) and assumes nothing about the noise.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

CONFIDENCE = 0.95

FEWEST_READINGS = 5
"""With fewer, even readings that all rise could do so by chance, at this confidence."""


@dataclass(frozen=True, kw_only=True)
class Slope:
    """Growth per round, in bytes, with the interval that holds the true one in 95 of 100 cases."""

    bytes_a_round: float
    low_bytes: float
    high_bytes: float


def fit_slope(readings: Sequence[float]) -> Slope | None:
    """The slope of readings taken one a round, or None where they are too few.

    >>> fit_slope([0, 10, 20, 30, 40, 50, 60])
    Slope(bytes_a_round=10.0, low_bytes=10.0, high_bytes=10.0)
    >>> fit_slope([0, 10, 20]) is None
    True
    """
    if len(readings) < FEWEST_READINGS:
        return None
    slopes = sorted((later - earlier) / (j - i) for (i, earlier), (j, later) in combinations(enumerate(readings), 2))
    skipped = _slopes_outside(len(readings))
    return Slope(
        bytes_a_round=statistics.median(slopes), low_bytes=slopes[skipped], high_bytes=slopes[len(slopes) - 1 - skipped]
    )


def _slopes_outside(count: int) -> int:
    """How many of the sorted slopes lie outside of the interval, at each end.

    >>> _slopes_outside(5), _slopes_outside(7), _slopes_outside(100) > 2000
    (0, 3, True)
    """
    tail = (1 - CONFIDENCE) / 2
    if count > 40:  # the distribution of ranks is a normal one by then
        pairs, deviation = count * (count - 1) / 2, math.sqrt(count * (count - 1) * (2 * count + 5) / 18)
        return max(int((pairs - statistics.NormalDist().inv_cdf(1 - tail) * deviation) / 2) - 1, 0)
    below, inside = 0.0, 0
    for share in _shares_by_inversions(count):
        below += share
        if below > tail:
            break
        inside += 1
    return max(inside - 1, 0)


def _shares_by_inversions(count: int) -> list[float]:
    """Of all orders of `count` readings, the share with 0, 1, 2, ... pairs that fall instead of rise."""
    shares = [1.0]
    for length in range(2, count + 1):
        wider = [0.0] * (len(shares) + length - 1)
        for inversions, share in enumerate(shares):
            for more in range(length):
                wider[inversions + more] += share / length
        shares = wider
    return shares
