"""A model's segments for reading in a terminal."""

from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, JustifyMethod, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from fitroom.remat.table import SegmentRow, SegmentTable
from fitroom.report.sheet import Sheet, bar
from fitroom.report.words import percent
from fitroom.units import format_bytes

_BAR_WIDTH, _NAME_WIDTH = 16, 44
_WIDTH_OF_FIGURES = 64
"""Of all columns but names and bars, and of the gaps between them."""


@dataclass(frozen=True)
class SegmentsText:
    """Laid out when printed, because only then are width and encoding known."""

    outline: SegmentTable

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        sheet, outline = Sheet.of(options), self.outline
        samples = "1 sample" if outline.num_samples == 1 else f"{outline.num_samples} samples"
        yield sheet.text(f"{outline.model}, {samples} at once, {outline.precision}", "bold")
        yield sheet.text(f"{outline.num_calls} calls of layers, {outline.num_cuts} places to cut")
        yield Text()
        yield Text("Activations and their gradients at the peak", "bold")
        yield sheet.bars(_peaks(outline), whole_bytes=outline.plain_peak_bytes)
        yield Text()
        yield Text("Stretches", "bold")
        yield sheet.indented(_table(outline, sheet))
        yield Text()
        again = percent(outline.operations, outline.forward_operations)
        yield sheet.text(
            f"Computed again: {giga(outline.operations)} of the {giga(outline.forward_operations)} operations of a "
            f"forward pass, {again}. Sizes are counted by rules; `fitroom estimate --remat` asks the framework."
        )


def _peaks(outline: SegmentTable) -> list[tuple[str, int | None]]:
    return [
        ("nothing recomputed", outline.plain_peak_bytes),
        ("with these segments", outline.peak_bytes),
        ("the smallest possible", outline.smallest_peak_bytes),
    ]


def _table(outline: SegmentTable, sheet: Sheet) -> RenderableType:
    """One row a stretch; the bar is what is there at its backward pass. Where there is little room, there is none."""
    room = sheet.width - _WIDTH_OF_FIGURES
    has_bars = room >= _NAME_WIDTH + _BAR_WIDTH
    has_first = room - _BAR_WIDTH * has_bars >= _NAME_WIDTH
    table = Table.grid(padding=(0, 2, 0, 0))
    for head in ("", "layers" if has_first else "up to", "kept at its end", "saved", "again", "at backward", ""):
        justify: JustifyMethod = "right" if head in ("kept at its end", "saved", "again", "at backward") else "left"
        table.add_column(Text(head, "bold"), no_wrap=True, overflow="crop", justify=justify)
    table.show_header = True
    for stretch in outline.stretches:
        again, kept = ("*", "-") if sheet.ascii_only else ("↻", "·")
        name = stretch.last
        if has_first and stretch.first != stretch.last:
            name = f"{sheet.shorten(stretch.first, _NAME_WIDTH // 2 - 2)} {sheet.ellipsis} {stretch.last}"
        cells = [
            Text(again if stretch.recomputed else kept),
            sheet.text(sheet.shorten(name, min(max(room, 12), _NAME_WIDTH))),
            Text(_leaving(stretch)),
            Text(format_bytes(stretch.saved_bytes) if stretch.recomputed else ""),
            Text(giga(stretch.operations) if stretch.recomputed else ""),
            Text(format_bytes(stretch.backward_bytes)),
        ]
        fraction = stretch.backward_bytes / max(outline.peak_bytes, 1) if has_bars else 0.0
        table.add_row(*cells, Text(bar(fraction, _BAR_WIDTH, ascii_only=sheet.ascii_only), "cyan"))
    return table


def _leaving(stretch: SegmentRow) -> str:
    if not stretch.leaving:
        return ""
    tensors = "" if len(stretch.leaving) == 1 else f"{len(stretch.leaving)} tensors, "
    return tensors + format_bytes(stretch.leaving_bytes)


def giga(operations: int) -> str:
    """A number of operations for reading.

    >>> giga(17_190_645_832), giga(52_000_000)
    ('17.2 G', '52.0 M')
    """
    for factor, unit in ((10**12, "T"), (10**9, "G"), (10**6, "M"), (10**3, "k")):
        if operations >= factor:
            return f"{operations / factor:.1f} {unit}"
    return str(operations)
