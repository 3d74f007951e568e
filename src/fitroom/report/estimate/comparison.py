"""Several estimates side by side: backends by batch sizes."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich import box
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from fitroom.memory.estimate import Estimate
from fitroom.report.estimate.words import format_shared_headline
from fitroom.report.shared.sheet import Sheet
from fitroom.report.shared.words import format_backend
from fitroom.units import format_bytes

_EXPLANATION = "What each step needs at least, and whether that is within the limit."


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """A cell of the table that could not be estimated."""

    backend: str
    batch_size: int
    reason: str
    """Why, in a sentence."""


Cell = Estimate | Refusal


def render_comparison(rows: Sequence[Cell]) -> RenderableType:
    """Lay out what every backend and batch size needs and whether it fits, with the reasons for refusals below.

    Estimates of different models, cards or settings get a table each.
    """
    return _EstimatesTable(tuple(rows))


@dataclass(frozen=True)
class _EstimatesTable:
    """Laid out when printed, because only then is the encoding known."""

    rows: tuple[Cell, ...]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        sheet = Sheet.of(options)
        reasons = dict.fromkeys(row.reason for row in self.rows if isinstance(row, Refusal))
        # Each reason has one number, however many cells it is the reason of.
        numbers = {reason: number for number, reason in enumerate(reasons, 1)}
        titles = dict.fromkeys(format_shared_headline(row) for row in self.rows if isinstance(row, Estimate))
        for title in titles:
            yield sheet.make_text(title, "bold")
            alike = [row for row in self.rows if isinstance(row, Refusal) or format_shared_headline(row) == title]
            yield _lay_out_table(alike, numbers, sheet)
        if titles:
            yield Text(_EXPLANATION)
            yield sheet.list_sentences(tuple(_list_notes(self.rows)))
        elif self.rows:
            yield _lay_out_table(self.rows, numbers, sheet)
        for reason, number in numbers.items():
            yield sheet.make_text(f"[{number}] {reason}")


def _list_notes(cells: Sequence[Cell]) -> Iterator[str]:
    """List what is said of the estimates, once each; with the backend and batch where it is not said of all."""
    estimates = [cell for cell in cells if isinstance(cell, Estimate)]
    for note in dict.fromkeys(note for estimate in estimates for note in estimate.notes):
        said_of = [estimate for estimate in estimates if note in estimate.notes]
        places = ", ".join(_list_places(said_of, estimates))
        yield note if len(said_of) == len(estimates) else f"{places}: {note}"


def _list_places(said_of: Sequence[Estimate], estimates: Sequence[Estimate]) -> Iterator[str]:
    """Name each backend, with its batches where not all of them are meant."""
    for backend in dict.fromkeys(each.backend for each in said_of):
        batches = [each.batch_size for each in said_of if each.backend == backend]
        is_all = len(batches) == sum(each.backend == backend for each in estimates)
        yield format_backend(backend) if is_all else f"{format_backend(backend)} batch {', '.join(map(str, batches))}"


def _lay_out_table(cells: Sequence[Cell], numbers: dict[str, int], sheet: Sheet) -> Table:
    """Batch sizes go down, because there can be many, and backends across, because there are few."""
    # Refusals first: where there is an estimate as well, it is what the cell shows.
    by_worth = sorted(cells, key=lambda cell: isinstance(cell, Estimate))
    found = {(cell.backend, cell.batch_size): cell for cell in by_worth}
    backends = list(dict.fromkeys(cell.backend for cell in cells))
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 2, 0, 0))
    # Folded where there is no room, because rich's ellipsis is not ASCII.
    table.add_column("batch", justify="right", overflow="fold")
    for backend in backends:
        limits = {row.limit_bytes for row in cells if isinstance(row, Estimate) and row.backend == backend}
        limit = f"\nlimit {format_bytes(limits.pop())}" if len(limits) == 1 else ""
        table.add_column(sheet.make_text(format_backend(backend) + limit), overflow="fold")
    for batch_size in sorted({cell.batch_size for cell in cells}):
        row = [_lay_out_cell(found.get((backend, batch_size)), numbers) for backend in backends]
        table.add_row(str(batch_size), *row)
    return table


def _lay_out_cell(cell: Cell | None, numbers: dict[str, int]) -> Text:
    if cell is None:
        return Text("-")
    if isinstance(cell, Refusal):
        return Text(f"no estimate [{numbers[cell.reason]}]", "yellow")
    needed = f"{format_bytes(cell.required_bytes):>10}"
    return Text.assemble(needed, "  ", ("fits", "green") if cell.fits else ("does NOT fit", "bold red"))
