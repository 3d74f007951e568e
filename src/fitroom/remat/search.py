"""Which segments to recompute: the least effort that stays within so many bytes.

Found by dynamic programming, exact up to the two roundings below. The chain is divided into segments at boundaries,
which are local minima of the bytes alive; each segment is kept or recomputed. What is kept of the segments before one,
and all that its own backward pass needs, must fit together. So a segmentation is built segment by segment. Of two that
reach the same boundary, one that keeps more and recomputes more is never better. Each boundary therefore has a front:
every segmentation up to it that is the best for some number of bytes.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fitroom.remat.chain import Array, Chain
from fitroom.remat.segmentation import Segment

GRAPH_PARTS = 160
"""First rounding. The bytes of a graph are divided into 160 equal parts; of the cuts within one part, only the one with
the fewest bytes alive becomes a boundary."""

BUDGET_PARTS = 500
"""Second rounding. A front of more than 500 segmentations is thinned: of those whose kept bytes differ by less than
1/500 of the budget, being in the same of 500 equal parts of it, only the one that keeps least is followed."""


@dataclass(frozen=True, kw_only=True)
class _Front:
    """The best segmentations up to one boundary: by the bytes they keep, more bytes for less effort."""

    kept_bytes: Array
    efforts: Array
    before: Array
    """The boundary at which the last segment of each begins, as its place among the boundaries."""

    continued: Array
    """Which segmentation of that boundary's front it continues."""

    is_recomputed: Array
    """Whether the last segment is recomputed."""


class Search:
    """Finds segmentations of one chain."""

    def __init__(self, chain: Chain) -> None:
        self.chain = chain
        self.boundaries = _boundaries(chain)
        # For the segment from one boundary to another, by their places.
        between: Array = np.zeros((4, len(self.boundaries), len(self.boundaries)), np.int64)
        self._crossing, self._kept, self._effort, self._own_peak = between
        for place, end in enumerate(self.boundaries[1:], start=1):
            starts = self.boundaries[:place]
            crossing, needed_crossing = chain.crossing(end)
            needed = chain.needed_before[end] - chain.needed_before[starts]
            efforts = np.concatenate([[0], np.cumsum(chain.efforts[:end] * chain.recomputed_before(end))])
            highest = np.maximum.accumulate(chain.at_backward[:end][::-1])[::-1]
            self._crossing[:place, place] = crossing[starts]
            self._kept[:place, place] = crossing[starts] + needed - needed_crossing[starts]
            self._effort[:place, place] = efforts[-1] - efforts[starts]
            self._own_peak[:place, place] = highest[starts] - chain.needed_before[starts]

    @cached_property
    def smallest_peak_bytes(self) -> int:
        """The smallest peak of any segmentation."""
        low, high = 0, self.chain.plain_peak_bytes
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if self._is_possible(middle) else (middle + 1, high)
        return high

    def cheapest(self, budget_bytes: int) -> tuple[Segment, ...] | None:
        """The segments to recompute for the least effort within the budget, or None where no choice fits."""
        if self.chain.plain_peak_bytes <= budget_bytes:
            return ()
        nothing: Array = np.zeros(1, np.int64)
        start = _Front(kept_bytes=nothing, efforts=nothing, before=nothing, continued=nothing, is_recomputed=nothing)
        fronts = [start]
        for place in range(1, len(self.boundaries)):
            fronts.append(self._front(fronts, place, budget_bytes))
        return self._segments(fronts, int(np.argmin(fronts[-1].efforts))) if len(fronts[-1].efforts) else None

    def _is_possible(self, budget_bytes: int) -> bool:
        """Whether any segmentation fits. It is enough to follow the least kept bytes: more kept before never helps."""
        least = np.full(len(self.boundaries), budget_bytes + 1)
        least[0] = 0
        for place in range(1, len(self.boundaries)):
            fits = least[:place] + self._own_peak[:place, place] <= budget_bytes
            if fits.any():
                least[place] = (least[:place] + self._crossing[:place, place])[fits].min()
        return bool(least[-1] <= budget_bytes)

    def _front(self, fronts: list[_Front], place: int, budget_bytes: int) -> _Front:
        """The best of all segmentations that reach one boundary from those before it."""
        sizes = [len(front.efforts) for front in fronts]
        before: Array = np.repeat(np.arange(place), sizes)
        continued = np.concatenate([np.arange(size) for size in sizes])
        kept = np.concatenate([front.kept_bytes for front in fronts])
        efforts = np.concatenate([front.efforts for front in fronts])
        fits = kept + self._own_peak[before, place] <= budget_bytes
        before, continued, kept, efforts = before[fits], continued[fits], kept[fits], efforts[fits]
        kept = np.concatenate([kept + self._kept[before, place], kept + self._crossing[before, place]])
        efforts = np.concatenate([efforts, efforts + self._effort[before, place]])
        order = np.lexsort((efforts, kept))
        least = np.minimum.accumulate(efforts[order])
        best = order[np.flatnonzero(np.diff(least, prepend=np.iinfo(np.int64).max) < 0)]
        best = best[_thin_out(kept[best], budget_bytes)]
        return _Front(
            kept_bytes=kept[best],
            efforts=efforts[best],
            before=np.tile(before, 2)[best],
            continued=np.tile(continued, 2)[best],
            is_recomputed=best >= len(before),
        )

    def _segments(self, fronts: list[_Front], at: int) -> tuple[Segment, ...]:
        """The recomputed segments of one segmentation of the last front, followed back to the beginning."""
        found, place = [], len(fronts) - 1
        while place:
            front = fronts[place]
            if front.is_recomputed[at]:
                start, stop = int(self.boundaries[front.before[at]]), int(self.boundaries[place])
                found.append(Segment(start=start, stop=stop))
            place, at = int(front.before[at]), int(front.continued[at])
        return tuple(reversed(found))


def _boundaries(chain: Chain) -> Array:
    """The beginning, the end, and the local minima of the bytes that are alive.

    Of cuts that divide the bytes in nearly the same place, the one with the fewest bytes alive is taken.
    """
    alive = chain.alive_bytes
    inner = np.arange(1, chain.num_calls)
    thin = inner[(alive[inner] <= alive[inner - 1]) & (alive[inner] <= alive[inner + 1])]
    parts = chain.needed_before[thin] * GRAPH_PARTS // (chain.needed_before[-1] + 1)
    order = np.lexsort((alive[thin], parts))
    thinnest = np.sort(thin[order[np.unique(parts[order], return_index=True)[1]]])
    return np.concatenate([[0], thinnest, [chain.num_calls]])


def _thin_out(kept_bytes: Array, budget_bytes: int) -> Array:
    """Which segmentations of a front to follow; `BUDGET_PARTS` says how a large front is thinned."""
    if len(kept_bytes) <= BUDGET_PARTS:
        return np.arange(len(kept_bytes))
    parts = kept_bytes * BUDGET_PARTS // (budget_bytes + 1)
    return np.union1d(np.unique(parts, return_index=True)[1], [len(kept_bytes) - 1])
