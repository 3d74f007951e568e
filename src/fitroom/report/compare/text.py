"""Runs side by side, and the list of runs, as text for a terminal."""

from collections.abc import Sequence
from dataclasses import dataclass

from rich import box
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.table import Table

from fitroom.report.compare.groups import Group, read_accuracy
from fitroom.report.compare.words import format_headline, format_memory, list_figures
from fitroom.report.run.words import format_title
from fitroom.report.shared.sheet import Sheet
from fitroom.report.shared.words import format_duration, format_share
from fitroom.runs.run import Run

_MOST_BESIDE = 3
"""So many groups have a column each; more of them have a row each."""


def render_comparison(groups: Sequence[Group]) -> RenderableType:
    """Lay out groups side by side, with the best named on top."""
    return _Comparison(tuple(groups))


def render_runs(runs: Sequence[Run]) -> RenderableType:
    """Lay out a row for each run."""
    return _RunList(tuple(runs))


@dataclass(frozen=True)
class _Comparison:
    """Laid out when printed, because only then are width and encoding known."""

    groups: tuple[Group, ...]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        sheet = Sheet.of(options)
        yield sheet.make_text(format_headline(self.groups), "bold")
        figures, names = list_figures(self.groups), [group.name for group in self.groups]
        if len(self.groups) <= _MOST_BESIDE:
            yield _lay_out(sheet, ["", *names], [[name, *texts] for name, texts in figures.items()])
        else:
            rows = [[name, *(texts[at] for texts in figures.values())] for at, name in enumerate(names)]
            yield _lay_out(sheet, ["run", *figures], rows)


@dataclass(frozen=True)
class _RunList:
    """Laid out when printed, because only then are width and encoding known."""

    runs: tuple[Run, ...]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        sheet = Sheet.of(options)
        rows = [
            [
                str(run.path),
                run.state,
                format_title(run) if run.job else "fitroom.fit",
                f"{run.num_epochs}/{run.facts['epochs']}",
                format_share(read_accuracy(run)),
                format_memory(Group("", (run,))),
                format_duration(run.seconds) if run.seconds else "-",
                str(run.facts.get("begun", "-"))[:16].replace("T", " "),
            ]
            for run in self.runs
        ]
        yield _lay_out(sheet, ["run", "state", "training", "epochs", "accuracy", "peak memory", "time", "begun"], rows)


def _lay_out(sheet: Sheet, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for head in heads:
        # Folded where there is no room, because rich's ellipsis is not ASCII.
        table.add_column(sheet.make_text(head), overflow="fold")
    for cells in rows:
        table.add_row(*(sheet.make_text(cell) for cell in cells))
    return table
