"""A timeline of any length as a few hundred columns, narrow enough to draw."""

from collections import Counter
from dataclasses import dataclass
from itertools import groupby, pairwise

from fitroom.estimating.timeline import KINDS, Kind, Moment, Phase, Timeline

MAX_COLUMNS = 800
_MAX_BAND_CELLS = 60


@dataclass(frozen=True, kw_only=True)
class Columns:
    """Stretches of moments, each shown by the one of its moments that holds the most."""

    edges: tuple[int, ...]
    """Column i shows the moments from `edges[i]` up to, not including, `edges[i + 1]`."""

    shown: tuple[int, ...]
    """The moment that stands for each column. The peak of the step is always among them."""

    moments: tuple[Moment, ...]
    """Those moments' operations."""

    bytes_of: dict[Kind, tuple[int, ...]]
    """Bytes of each kind in each column; a kind that is in none is left out."""


@dataclass(frozen=True, kw_only=True)
class PhaseBand:
    """Neighbouring moments that are mostly of one phase."""

    phase: Phase
    first: int
    end: int
    """The moment after the last one."""


def columns(timeline: Timeline, max_columns: int = MAX_COLUMNS) -> Columns:
    """At most `max_columns` columns. No maximum is lost, because each column shows its highest moment."""
    usage_bytes = timeline.usage_bytes
    edges = _even_edges(len(usage_bytes), max_columns)
    shown = tuple(max(range(first, end), key=usage_bytes.__getitem__) for first, end in pairwise(edges))
    usages = {kind: timeline.usage_bytes_of(kind) for kind in KINDS}
    heights = {kind: tuple(usage[moment] for moment in shown) for kind, usage in usages.items()}
    return Columns(
        edges=edges,
        shown=shown,
        moments=tuple(timeline.moments[moment] for moment in shown),
        bytes_of={kind: sizes for kind, sizes in heights.items() if any(sizes)},
    )


def phase_bands(timeline: Timeline) -> list[PhaseBand]:
    """The step cut into bands by phase, none where the phase of most operations is unknown.

    A compiler may run a few updates between two operations of the backward pass; a band goes by the majority,
    and a single cell between two of one phase goes with them.
    """
    cells = list(pairwise(_even_edges(len(timeline.moments), _MAX_BAND_CELLS)))
    majority = [Counter(m.phase for m in timeline.moments[first:end]).most_common(1)[0][0] for first, end in cells]
    for cell in range(1, len(cells) - 1):
        if majority[cell - 1] == majority[cell + 1]:
            majority[cell] = majority[cell - 1]
    bands = []
    for phase, neighbours in groupby(zip(majority, cells, strict=True), key=lambda pair: pair[0]):
        stretch = [cell for _, cell in neighbours]
        if phase is not None:
            bands.append(PhaseBand(phase=phase, first=stretch[0][0], end=stretch[-1][1]))
    return bands


def _even_edges(length: int, max_pieces: int) -> tuple[int, ...]:
    """Where to cut `length` moments into at most `max_pieces` pieces of nearly the same length."""
    pieces = min(length, max_pieces)
    return tuple(length * piece // pieces for piece in range(pieces + 1))
