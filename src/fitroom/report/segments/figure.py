"""The graph of a model's layers as a figure: what follows what, where it is cut, what is recomputed."""

from collections.abc import Iterator
from dataclasses import dataclass

from fitroom.remat.graph import LayerGraph
from fitroom.remat.table import SegmentRow, SegmentTable
from fitroom.report.shared.palette import INK, KIND_COLOURS, MUTED, PAPER
from fitroom.report.shared.templates import render
from fitroom.report.shared.words import shorten_middle
from fitroom.units import format_bytes

_ROW, _LANE, _TOP, _LEFT, _NAMES_WIDTH, _NOTES_WIDTH = 18, 16, 58, 28, 330, 260
_LINE_HEIGHT = 14


@dataclass(frozen=True, kw_only=True)
class _Node:
    """One call of a layer: a dot and its name."""

    x: int
    y: int
    name: str
    short_name: str
    kind: str


@dataclass(frozen=True, kw_only=True)
class _Band:
    """One segment: the rows that it takes, and what it is worth."""

    y: int
    height: int
    recomputed: bool
    notes: list[str]


def draw_segments(graph: LayerGraph, table: SegmentTable) -> str:
    """Return an SVG file: one row a call, one line a tensor, a band for each segment that is recomputed."""
    lanes = _assign_lanes(graph)
    names_at = _LEFT + _LANE * (max(lanes, default=0) + 1)
    return render(
        "segments/figure.svg",
        width=names_at + _NAMES_WIDTH + _NOTES_WIDTH,
        height=_TOP + _ROW * len(graph.calls) + 20,
        left=_LEFT - 8,
        names_at=names_at,
        notes_at=names_at + _NAMES_WIDTH,
        line_height=_LINE_HEIGHT,
        colours={"ink": INK, "muted": MUTED, "paper": PAPER, "recomputed": KIND_COLOURS["activations"]},
        title=f"{table.model}, micro-batch {table.num_samples}, {table.precision}",
        subtitle=_format_subtitle(table),
        bands=list(_make_bands(table)),
        lines=list(_trace_lines(graph, lanes)),
        nodes=list(_make_nodes(graph, lanes)),
    )


def _format_subtitle(table: SegmentTable) -> str:
    share = 100 * table.operations / max(table.forward_operations, 1)
    return (
        f"activations at the peak: {format_bytes(table.peak_bytes)} instead of "
        f"{format_bytes(table.plain_peak_bytes)}, for {share:.0f} % of a forward pass recomputed"
    )


def _assign_lanes(graph: LayerGraph) -> list[int]:
    """Return for each call the lane in which its outputs continue, few lanes in all."""
    lanes: list[int] = []
    until: dict[int, int] = {}
    """By lane: the last call that uses what is in it."""
    for number, call in enumerate(graph.calls):
        given = [lanes[graph.made_by[tensor]] for tensor in call.inputs if tensor in graph.made_by]
        free = [lane for lane in given if until[lane] <= number]
        lane = free[0] if free else next(lane for lane in range(number + 1) if until.get(lane, -1) <= number)
        lanes.append(lane)
        until[lane] = max((user for tensor in call.outputs for user in graph.used_by.get(tensor, ())), default=number)
    return lanes


def _locate(lane: int, number: int) -> tuple[int, int]:
    return _LEFT + _LANE * lane, _TOP + _ROW * number + _ROW // 2


def _make_bands(table: SegmentTable) -> Iterator[_Band]:
    row = 0
    for segment in table.rows:
        y, height = _TOP + _ROW * row, _ROW * segment.num_calls
        row += segment.num_calls
        room = max(height // _LINE_HEIGHT, 1)
        yield _Band(y=y, height=height, recomputed=segment.recomputed, notes=_list_notes(segment)[:room])


def _list_notes(segment: SegmentRow) -> list[str]:
    if not segment.recomputed:
        return ["kept"]
    tensors = "1 tensor" if len(segment.leaving) == 1 else f"{len(segment.leaving)} tensors"
    return [
        f"recomputed, saves {format_bytes(segment.saved_bytes)}",
        f"{tensors} kept at its end: {format_bytes(segment.leaving_bytes)}",
    ]


def _make_nodes(graph: LayerGraph, lanes: list[int]) -> Iterator[_Node]:
    for number, call in enumerate(graph.calls):
        x, y = _locate(lanes[number], number)
        kind = "entry" if call.enters else type(call.operation).__name__
        yield _Node(x=x, y=y, name=call.name, short_name=shorten_middle(call.name, 36), kind=kind)


def _trace_lines(graph: LayerGraph, lanes: list[int]) -> Iterator[str]:
    """Yield the path from each call to those that use its outputs: down its own lane, then across to theirs."""
    for number, call in enumerate(graph.calls):
        users = {user for tensor in call.outputs for user in graph.used_by.get(tensor, ()) if user < len(graph.calls)}
        for user in sorted(users):
            (x, y), (to_x, to_y) = _locate(lanes[number], number), _locate(lanes[user], user)
            across = f"V{to_y - _ROW}C{x} {to_y - _ROW // 3} {to_x} {to_y - _ROW // 2} {to_x} {to_y}"
            yield f"M{x} {y}" + (f"V{to_y}" if x == to_x else across)
