"""Runs side by side, and the list of runs, as text for a terminal."""

from collections.abc import Sequence
from dataclasses import dataclass

from rich import box
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.table import Table

from fitroom.report.compare.groups import Group, read_accuracy
from fitroom.report.compare.words import format_headline, list_figures, list_short_figures, order_groups
from fitroom.report.progress.words import format_time
from fitroom.report.run.words import format_title
from fitroom.report.shared.sheet import Sheet
from fitroom.report.shared.words import format_share
from fitroom.runs.run import Run
from fitroom.units import format_bytes

_MOST_BESIDE = 3
"""So many groups have a column each; more of them have a row each."""

_WIDE = 120


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
        if len(self.groups) <= _MOST_BESIDE:
            rows = [[name, *texts] for name, texts in list_figures(self.groups).items()]
            yield _lay_out(sheet, ["", *(group.name for group in self.groups)], rows)
        else:
            ranked = order_groups(self.groups)
            figures = list_short_figures(ranked)
            rows = [[group.name, *(texts[at] for texts in figures.values())] for at, group in enumerate(ranked)]
            yield _lay_out(sheet, ["training", *figures], rows, whole_from=1)


@dataclass(frozen=True)
class _RunList:
    """Laid out when printed, because only then are width and encoding known."""

    runs: tuple[Run, ...]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        sheet = Sheet.of(options)
        cells = [_list_facts(run) for run in self.runs]
        # What a run is called says most, so that it keeps its room where the terminal is narrow.
        heads = [head for head in cells[0] if sheet.width >= _WIDE or head not in ("training", "begun")]
        yield _lay_out(sheet, heads, [[facts[head] for head in heads] for facts in cells], whole_from=1)


def _list_facts(run: Run) -> dict[str, str]:
    peak_bytes = run.readings.peak_bytes
    return {
        "run": str(run.path),
        "training": format_title(run) if run.train_job else "fitroom.fit",
        "state": run.state,
        "epochs": f"{run.num_epochs}/{run.facts['epochs']}",
        "accuracy": format_share(read_accuracy(run)),
        "memory": "-" if peak_bytes is None else format_bytes(peak_bytes),
        "time": format_time(run.seconds) if run.seconds else "-",
        "begun": str(run.facts.get("begun", "-"))[:16].replace("T", " "),
    }


def _lay_out(sheet: Sheet, heads: Sequence[str], rows: Sequence[Sequence[str]], *, whole_from: int = 99) -> Table:
    """A table; columns from `whole_from` on keep their lines whole."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for number, head in enumerate(heads):
        # Folded where there is no room, because rich's ellipsis is not ASCII.
        table.add_column(sheet.make_text(head), overflow="fold", no_wrap=number >= whole_from)
    for cells in rows:
        table.add_row(*(sheet.make_text(cell) for cell in cells))
    return table
