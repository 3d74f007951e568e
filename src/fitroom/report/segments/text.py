"""A model's segments for reading in a terminal."""

from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, JustifyMethod, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from fitroom.remat.table import SegmentRow, SegmentTable
from fitroom.report.shared.sheet import Sheet, draw_bar
from fitroom.report.shared.words import format_percent
from fitroom.units import format_bytes

_BAR_WIDTH, _NAME_WIDTH = 16, 44
_WIDTH_OF_FIGURES = 67
"""The width of all columns but names and bars, and of the gaps between them."""


def render_segments_text(segments: SegmentTable) -> RenderableType:
    """Lay out what each segment of a model keeps and saves, and what recomputing it costs."""
    return _SegmentsText(segments)


@dataclass(frozen=True)
class _SegmentsText:
    """Laid out when printed, because only then are width and encoding known."""

    segments: SegmentTable

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        sheet, segments = Sheet.of(options), self.segments
        yield sheet.make_text(f"{segments.model}, micro-batch {segments.num_samples}, {segments.precision}", "bold")
        yield sheet.make_text(f"{segments.num_calls} calls of layers, {segments.num_cuts} places to cut")
        yield Text()
        yield Text("Activations and their gradients at the peak", "bold")
        yield sheet.draw_bars(_list_peaks(segments), whole_bytes=segments.plain_peak_bytes)
        yield Text()
        yield Text("Segments", "bold")
        yield sheet.indent(_lay_out_table(segments, sheet))
        yield Text()
        share = format_percent(segments.operations, segments.forward_operations)
        yield sheet.make_text(
            f"Recomputed: {format_operations(segments.operations)} of the "
            f"{format_operations(segments.forward_operations)} operations of a "
            f"forward pass, {share}. Sizes are counted by rules; `fitroom estimate --remat` asks the framework."
        )


def _list_peaks(segments: SegmentTable) -> list[tuple[str, int | None]]:
    return [
        ("nothing recomputed", segments.plain_peak_bytes),
        ("with these segments", segments.peak_bytes),
        ("the smallest possible", segments.smallest_peak_bytes),
    ]


def _lay_out_table(segments: SegmentTable, sheet: Sheet) -> RenderableType:
    """Lay out a row for each segment; the bar is what is in use at its backward pass, where there is room for one."""
    room = sheet.width - _WIDTH_OF_FIGURES
    has_bars = room >= _NAME_WIDTH + _BAR_WIDTH
    has_first = room - _BAR_WIDTH * has_bars >= _NAME_WIDTH
    table = Table.grid(padding=(0, 2, 0, 0))
    for head in ("", "layers" if has_first else "up to", "kept at its end", "saved", "recompute", "at backward", ""):
        justify: JustifyMethod = "right" if head in ("kept at its end", "saved", "recompute", "at backward") else "left"
        table.add_column(Text(head, "bold"), no_wrap=True, overflow="crop", justify=justify)
    table.show_header = True
    for segment in segments.rows:
        recomputed, kept = ("*", "-") if sheet.ascii_only else ("↻", "·")
        name = segment.last
        if has_first and segment.first != segment.last:
            name = f"{sheet.shorten(segment.first, _NAME_WIDTH // 2 - 2)} {sheet.ellipsis} {segment.last}"
        cells = [
            Text(recomputed if segment.recomputed else kept),
            sheet.make_text(sheet.shorten(name, min(max(room, 12), _NAME_WIDTH))),
            Text(_format_leaving(segment)),
            Text(format_bytes(segment.saved_bytes) if segment.recomputed else ""),
            Text(format_operations(segment.operations) if segment.recomputed else ""),
            Text(format_bytes(segment.backward_bytes)),
        ]
        fraction = segment.backward_bytes / max(segments.peak_bytes, 1) if has_bars else 0.0
        table.add_row(*cells, Text(draw_bar(fraction, _BAR_WIDTH, ascii_only=sheet.ascii_only), "cyan"))
    return table


def _format_leaving(segment: SegmentRow) -> str:
    if not segment.leaving:
        return ""
    tensors = "" if len(segment.leaving) == 1 else f"{len(segment.leaving)} tensors, "
    return tensors + format_bytes(segment.leaving_bytes)


def format_operations(operations: int) -> str:
    """Write a number of operations.

    >>> format_operations(17_190_645_832), format_operations(52_000_000)
    ('17.2 G', '52.0 M')
    """
    for factor, unit in ((10**12, "T"), (10**9, "G"), (10**6, "M"), (10**3, "k")):
        if operations >= factor:
            return f"{operations / factor:.1f} {unit}"
    return str(operations)
