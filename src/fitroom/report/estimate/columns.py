"""A timeline of any length as a few hundred columns, narrow enough to draw."""

from collections import Counter
from dataclasses import dataclass
from itertools import accumulate, groupby, pairwise

from fitroom.memory.timeline import KINDS, PHASES, Kind, Moment, Phase, Timeline

MAX_COLUMNS = 800
_MAX_BAND_CELLS = 60
_MOSTLY = 0.8
"""Of the operations: so many in the band of their phase make a step that goes forward and backward once."""


@dataclass(frozen=True, kw_only=True)
class Columns:
    """Neighbouring moments as columns, each shown by the one of its moments that holds the most."""

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


def cut_columns(timeline: Timeline, max_columns: int = MAX_COLUMNS) -> Columns:
    """Cut a timeline into at most `max_columns` columns.

    No maximum is lost, because each column shows its highest moment.
    """
    usage_bytes = timeline.usage_bytes
    edges = _cut_evenly(len(usage_bytes), max_columns)
    shown = tuple(max(range(first, end), key=usage_bytes.__getitem__) for first, end in pairwise(edges))
    usages = {kind: timeline.usage_bytes_of(kind) for kind in KINDS}
    heights = {kind: tuple(usage[moment] for moment in shown) for kind, usage in usages.items()}
    return Columns(
        edges=edges,
        shown=shown,
        moments=tuple(timeline.moments[moment] for moment in shown),
        bytes_of={kind: sizes for kind, sizes in heights.items() if any(sizes)},
    )


def find_phase_bands(timeline: Timeline) -> list[PhaseBand]:
    """Cut the step into bands by phase, none where the phase of most operations is unknown.

    Each phase once, in the order they run, cut where most operations agree: a compiler runs a few updates between two
    operations of the backward pass, and statistics and metrics of the forward pass at the very end. A step that goes
    forward and backward several times, micro-batch by micro-batch, has a band for each.
    """
    in_order = _cut_in_order(timeline)
    agreeing = sum(
        moment.phase == band.phase for band in in_order for moment in timeline.moments[band.first : band.end]
    )
    known = sum(moment.phase is not None for moment in timeline.moments)
    is_once = agreeing >= _MOSTLY * known and 2 * known > len(timeline.moments)
    return in_order if is_once else _cut_by_majority(timeline)


def _cut_in_order(timeline: Timeline) -> list[PhaseBand]:
    """Forward, backward and update, cut so that the most moments are in the band of their phase."""
    length = len(timeline.moments)
    before = {phase: [0, *accumulate(moment.phase == phase for moment in timeline.moments)] for phase in PHASES}
    forward, backward, update = (before[phase] for phase in PHASES)
    cuts, best, best_start = (0, 0), -1, 0
    for end in range(length + 1):
        if forward[end] - backward[end] > forward[best_start] - backward[best_start]:
            best_start = end
        agreeing = forward[best_start] - backward[best_start] + backward[end] + update[length] - update[end]
        if agreeing > best:
            cuts, best = (best_start, end), agreeing
    pieces = zip(PHASES, pairwise((0, *cuts, length)), strict=True)
    found = [(phase, _trim_unknown_ends(timeline, *piece)) for phase, piece in pieces]
    return [PhaseBand(phase=phase, first=first, end=end) for phase, (first, end) in found if first < end]


def _trim_unknown_ends(timeline: Timeline, first: int, end: int) -> tuple[int, int]:
    known = [at for at in range(first, end) if timeline.moments[at].phase is not None]
    return (known[0], known[-1] + 1) if known else (first, first)


def _cut_by_majority(timeline: Timeline) -> list[PhaseBand]:
    """Bands of one phase each; a single cell between two of one phase goes with them."""
    cells = list(pairwise(_cut_evenly(len(timeline.moments), _MAX_BAND_CELLS)))
    majority = [Counter(m.phase for m in timeline.moments[first:end]).most_common(1)[0][0] for first, end in cells]
    for cell in range(1, len(cells) - 1):
        if majority[cell - 1] == majority[cell + 1]:
            majority[cell] = majority[cell - 1]
    bands = []
    for phase, neighbours in groupby(zip(majority, cells, strict=True), key=lambda pair: pair[0]):
        band = [cell for _, cell in neighbours]
        if phase is not None:
            bands.append(PhaseBand(phase=phase, first=band[0][0], end=band[-1][1]))
    return bands


def _cut_evenly(length: int, max_pieces: int) -> tuple[int, ...]:
    """Where to cut `length` moments into at most `max_pieces` pieces of nearly the same length."""
    pieces = min(length, max_pieces)
    return tuple(length * piece // pieces for piece in range(pieces + 1))
