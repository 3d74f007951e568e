"""The table of trials as text for a terminal, and for a notebook."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.table import Table

from fitroom.loops.trials.plain import find_differing, format_value
from fitroom.loops.trials.table import Trial, Trials
from fitroom.report.shared.sheet import Sheet
from fitroom.report.shared.templates import render
from fitroom.report.shared.words import format_duration
from fitroom.units import format_bytes

if TYPE_CHECKING:
    from markupsafe import Markup

_MOST_COLUMNS = 4
_LONGEST_ERROR = 300


def render_trials(trials: Trials) -> RenderableType:
    """Lay out a row for each trial: the settings that differ, what came of it, its results, time and memory."""
    return _TrialsTable(trials)


def render_trials_html(trials: Trials) -> "Markup":
    """Render the same table for a notebook."""
    heads, rows = list_cells(trials.rows)
    return render("compare/trials.html", summary=format_summary(trials), heads=heads, rows=rows)


@dataclass(frozen=True)
class _TrialsTable:
    """Laid out when printed, because only then are width and encoding known."""

    trials: Trials

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        sheet = Sheet.of(options)
        yield sheet.make_text(format_summary(self.trials), "bold")
        heads, rows = list_cells(self.trials.rows)
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
        for head in heads:
            # Folded where there is no room, because rich's ellipsis is not ASCII.
            table.add_column(sheet.make_text(head), justify="right" if head == "#" else "left", overflow="fold")
        for cells in rows:
            table.add_row(*(sheet.make_text(cell) for cell in cells))
        yield table
        for row in self.trials.failed:
            yield sheet.make_text(f"{row.number}  {row.state}: {_shorten_error(row)}")
            if row.log is not None:
                yield sheet.make_text(f"   log: {row.log}")


def format_summary(trials: Trials) -> str:
    """Say how many trials there are and how many finished."""
    total, finished = len(trials.rows), len(trials.finished)
    done = f"{finished} of {total} trials finished" if finished < total else f"{total} trials, all finished"
    return f"{done}; in {trials.folder}"


def list_cells(rows: Sequence[Trial]) -> tuple[list[str], list[list[str]]]:
    """The heads of the table and the cells of each row. Columns in which all are alike are left out."""
    settings = find_differing([row.settings for row in rows])
    results = _find_results(rows)
    has_memory = any(row.peak_bytes is not None for row in rows)
    heads = ["#", *settings, "state", *results, "time", *(["peak memory"] if has_memory else [])]
    cells = [
        [
            str(row.number),
            *(format_value(row.settings[name]) if name in row.settings else "-" for name in settings),
            row.state,
            *(_format_result(row, name) for name in results),
            "-" if row.seconds is None else format_duration(row.seconds),
            *([format_bytes(row.peak_bytes) if row.peak_bytes is not None else "-"] if has_memory else []),
        ]
        for row in rows
    ]
    return heads, cells


def _find_results(rows: Sequence[Trial]) -> list[str]:
    """The names of the results that have a column: the first few of dicts, and one for results that are no dicts."""
    results = [row.result for row in rows if row.is_finished]
    names = dict.fromkeys(name for result in results if isinstance(result, dict) for name in result)
    plain = ["result"] if any(not isinstance(result, dict) and result is not None for result in results) else []
    return [*plain, *list(names)[:_MOST_COLUMNS]]


def _format_result(row: Trial, name: str) -> str:
    value = row.result.get(name) if isinstance(row.result, dict) else row.result if name == "result" else None
    if isinstance(value, list) and value:  # of a history, the last epoch
        value = value[-1]
    return "-" if value is None else format_value(value)[:40]


def _shorten_error(row: Trial) -> str:
    return (row.error or "").strip().partition("\n")[0][:_LONGEST_ERROR]
