"""An estimate for reading in a terminal.

Nothing here prints; what is returned, `rich` can print:

    rich.console.Console().print(render_estimate_text(estimate))
"""

from collections.abc import Iterator
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from fitroom.memory.estimate import Estimate
from fitroom.report.estimate import words
from fitroom.report.shared.sheet import Sheet
from fitroom.units import format_bytes

_NUM_LAYERS = 12
_WIDTH_FOR_MEANINGS = 60
"""Where there is less, the three sizes stand without their explanations."""


def render_estimate_text(estimate: Estimate) -> RenderableType:
    """Lay out the whole estimate: verdict, three sizes, the split of the peak, and how it was found."""
    return _EstimateText(estimate)


@dataclass(frozen=True)
class _EstimateText:
    """Laid out when printed, because only then are width and encoding known."""

    estimate: Estimate

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        sheet, estimate = Sheet.of(options), self.estimate
        yield sheet.make_text(words.format_headline(estimate), "bold")
        yield sheet.make_text(words.format_verdict(estimate), "bold green" if estimate.fits else "bold red")
        for title, body in _make_sections(estimate, sheet):
            yield Text()
            yield Text(title, "bold")
            yield from body


def _make_sections(estimate: Estimate, sheet: Sheet) -> Iterator[tuple[str, list[RenderableType]]]:
    yield "Memory", [_lay_out_sizes(estimate, sheet)]
    yield "Peak by kind", [_lay_out_kinds(estimate, sheet)]
    yield "Peak by layer", [_lay_out_layers(estimate, sheet)]
    yield "Peak within each phase", [_lay_out_phases(estimate, sheet), _lay_out_place(estimate, sheet)]
    yield "How it was found", [sheet.indent(sheet.make_text(line)) for line in _list_method(estimate)]
    if estimate.notes:
        yield "Notes", [sheet.list_sentences(estimate.notes)]


def _lay_out_sizes(estimate: Estimate, sheet: Sheet) -> RenderableType:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True, overflow="crop")
    table.add_column(no_wrap=True, overflow="crop", justify="right")
    for size in words.list_sizes(estimate):
        cells = [Text(size.name), Text(format_bytes(size.size_bytes), "bold"), Text(size.meaning)]
        if sheet.width >= _WIDTH_FOR_MEANINGS:
            table.add_row(*cells)
        else:
            table.add_row(*cells[:2])
    return sheet.indent(table)


def _lay_out_kinds(estimate: Estimate, sheet: Sheet) -> RenderableType:
    kinds = [(str(kind), size) for kind, size in estimate.by_kind.items() if size > 0]
    return _lay_out_split(sorted(kinds, key=lambda row: -row[1]), sheet)


def _lay_out_layers(estimate: Estimate, sheet: Sheet) -> RenderableType:
    layers = [(row.layer, row.bytes) for row in estimate.by_layer if row.bytes > 0]
    return _lay_out_split(layers, sheet, shown=_NUM_LAYERS)


def _lay_out_split(rows: list[tuple[str, int]], sheet: Sheet, shown: int | None = None) -> RenderableType:
    """Split the peak into rows, the largest `shown` of them one by one and the others together."""
    if not rows:
        return sheet.indent(Text("nothing is in use"))
    others = rows[shown:] if shown else []
    named = rows[: len(rows) - len(others)]
    label = f"{sheet.ellipsis} and {len(others)} more layer{'s' if len(others) > 1 else ''}"
    rest = (label, sum(size for _, size in others)) if others else None
    return sheet.draw_bars(named, whole_bytes=sum(size for _, size in rows), rest=rest)


def _lay_out_phases(estimate: Estimate, sheet: Sheet) -> RenderableType:
    peaks = words.list_phases(estimate)
    if all(size is None for size in peaks.values()):
        return sheet.indent(Text("unknown: the compiler does not tell which operation is in which phase"))
    return sheet.draw_bars(list(peaks.items()), whole_bytes=estimate.timeline.peak_bytes)


def _lay_out_place(estimate: Estimate, sheet: Sheet) -> RenderableType:
    label = "where the peak is: "
    room = sheet.width - len(label) - len(", backward") - 2
    place = words.format_peak_place(estimate, width=max(room, 12), ellipsis=sheet.ellipsis)
    return sheet.indent(sheet.make_text(label + place))


def _list_method(estimate: Estimate) -> list[str]:
    versions = ", ".join(f"{package} {version}" for package, version in estimate.versions.items())
    lines = [words.format_method(estimate), f"took {words.format_time_taken(estimate)}"]
    return [*lines, f"with {versions}"] if versions else lines
