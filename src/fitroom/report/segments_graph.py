"""The graph of a model's layers as a picture: what follows what, where it is cut, what is computed again."""

from collections.abc import Iterator
from html import escape

from fitroom.remat.graph import LayerGraph
from fitroom.remat.table import SegmentRow, SegmentTable
from fitroom.report.palette import INK, KIND_COLOURS, MUTED, PAPER
from fitroom.report.words import shorten_middle
from fitroom.units import format_bytes

_ROW, _LANE, _TOP, _LEFT, _NAMES_WIDTH, _NOTES_WIDTH = 18, 16, 58, 28, 330, 260
_AGAIN = KIND_COLOURS["activations"]


def graph_svg(graph: LayerGraph, outline: SegmentTable) -> str:
    """An SVG file: one row a call, one line a tensor, a band for each segment that is computed again."""
    lanes = _lanes(graph)
    names_at = _LEFT + _LANE * (max(lanes, default=0) + 1)
    width, height = names_at + _NAMES_WIDTH + _NOTES_WIDTH, _TOP + _ROW * len(graph.calls) + 20
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'font-family="DejaVu Sans, Verdana, Arial, sans-serif" font-size="11" fill="{INK}">',
        f'<rect width="{width}" height="{height}" fill="{PAPER}"/>',
        f'<text x="{_LEFT - 8}" y="24" font-size="15" font-weight="bold">{escape(_title(outline))}</text>',
        f'<text x="{_LEFT - 8}" y="42" fill="{MUTED}">{escape(_subtitle(outline))}</text>',
        *_bands(outline, width, names_at + _NAMES_WIDTH),
        *_lines(graph, lanes),
    ]
    for number, call in enumerate(graph.calls):
        x, y = _place(lanes[number], number)
        kind = "entry" if call.enters else type(call.operation).__name__
        name = shorten_middle(call.name, 36)
        parts.append(
            f'<circle cx="{x}" cy="{y}" r="4" fill="{INK}"><title>{escape(f"{call.name} ({kind})")}</title></circle>'
        )
        parts.append(
            f'<text x="{names_at}" y="{y + 4}">{escape(name)} <tspan fill="{MUTED}">{escape(kind)}</tspan></text>'
        )
    return "\n".join([*parts, "</svg>", ""])


def _title(outline: SegmentTable) -> str:
    return f"{outline.model}, {outline.num_samples} samples at once, {outline.precision}"


def _subtitle(outline: SegmentTable) -> str:
    share = 100 * outline.operations / max(outline.forward_operations, 1)
    return (
        f"activations at the peak: {format_bytes(outline.peak_bytes)} instead of "
        f"{format_bytes(outline.plain_peak_bytes)}, for {share:.0f} % of a forward pass computed again"
    )


def _lanes(graph: LayerGraph) -> list[int]:
    """For each call the lane in which what it makes goes on, few lanes in all."""
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


def _place(lane: int, number: int) -> tuple[int, int]:
    return _LEFT + _LANE * lane, _TOP + _ROW * number + _ROW // 2


def _bands(outline: SegmentTable, width: int, notes_at: int) -> Iterator[str]:
    """A band behind each stretch that is computed again, a dashed line at each cut, and what they are worth."""
    row = 0
    for stretch in outline.stretches:
        y, height = _TOP + _ROW * row, _ROW * stretch.num_calls
        row += stretch.num_calls
        if stretch.recomputed:
            size = f'width="{width - 16}" height="{height - 2}"'
            yield f'<rect x="8" y="{y + 1}" {size} rx="4" fill="{_AGAIN}" opacity="0.22"/>'
        for line, text in enumerate(_notes(stretch)):
            if (line + 1) * 14 <= height or line == 0:
                yield f'<text x="{notes_at}" y="{y + 13 + 14 * line}" fill="{MUTED}">{escape(text)}</text>'
        if row < outline.num_calls:
            yield f'<path d="M8 {y + height}H{width - 8}" stroke="{MUTED}" stroke-dasharray="4 3" stroke-width="0.8"/>'


def _notes(stretch: SegmentRow) -> list[str]:
    if not stretch.recomputed:
        return ["kept"]
    tensors = "1 tensor" if len(stretch.leaving) == 1 else f"{len(stretch.leaving)} tensors"
    return [
        f"computed again, saves {format_bytes(stretch.saved_bytes)}",
        f"{tensors} kept at its end: {format_bytes(stretch.leaving_bytes)}",
    ]


def _lines(graph: LayerGraph, lanes: list[int]) -> Iterator[str]:
    """From each call to those that use what it makes: down its own lane, then across to theirs."""
    for number, call in enumerate(graph.calls):
        users = {user for tensor in call.outputs for user in graph.used_by.get(tensor, ()) if user < len(graph.calls)}
        for user in sorted(users):
            (x, y), (to_x, to_y) = _place(lanes[number], number), _place(lanes[user], user)
            across = f"V{to_y - _ROW}C{x} {to_y - _ROW // 3} {to_x} {to_y - _ROW // 2} {to_x} {to_y}"
            path = f"M{x} {y}" + (f"V{to_y}" if x == to_x else across)
            yield f'<path d="{path}" fill="none" stroke="{MUTED}" stroke-width="1.2"/>'
