"""A plan for reading in a terminal.

Nothing here prints; what is returned, `rich` can print:

    rich.console.Console().print(plan_text(plan))
"""

from collections.abc import Iterator
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from fitroom.planning.result import Plan
from fitroom.report import plan_words as words
from fitroom.report.plan_frontier import frontier_table
from fitroom.report.sheet import Sheet


def plan_text(plan: Plan, *, all_recipes: bool = False) -> RenderableType:
    """The whole plan: verdict, memory, speed, what it changes and why, and what there is instead.

    Args:
        plan: the plan.
        all_recipes: show every recipe that it chose from, not those near the chosen one alone.
    """
    return _PlanText(plan, all_recipes)


@dataclass(frozen=True)
class _PlanText:
    """Laid out when printed, because only then are width and encoding known."""

    plan: Plan
    all_recipes: bool

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        sheet, plan = Sheet.of(options), self.plan
        yield sheet.text(words.headline(plan), "bold")
        yield sheet.text(words.verdict(plan), "bold green")
        for title, body in _sections(plan, sheet, all_recipes=self.all_recipes):
            yield Text()
            yield Text(title, "bold")
            yield from body


def _sections(plan: Plan, sheet: Sheet, *, all_recipes: bool) -> Iterator[tuple[str, list[RenderableType]]]:
    yield "Memory", [_memory(plan, sheet), _line(words.reserve_words(plan), sheet)]
    yield "Speed", [_line(words.speed_words(plan.speed, plan.batch_size), sheet)]
    yield "What it changes about the result", [_changes(plan, sheet)]
    yield "Why", [_line(plan.why, sheet)]
    if plan.frontier:
        yield "What there is to choose from", [frontier_table(plan, sheet, all_recipes=all_recipes)]
    if plan.fallbacks:
        yield "If memory runs out all the same", [_line(words.fallback_words(plan), sheet)]
    if plan.notes:
        yield "Notes", [sheet.listed(plan.notes)]


def _memory(plan: Plan, sheet: Sheet) -> RenderableType:
    """The budget is a row itself, so that all bars are parts of its."""
    sizes = [
        ("peak", plan.estimate.peak_bytes),
        ("needs at least", plan.estimate.required_bytes),
        ("stays free", max(plan.free_bytes, 0)),
        ("budget", plan.budget.bytes),
    ]
    return sheet.bars(sizes, whole_bytes=plan.budget.bytes)


def _changes(plan: Plan, sheet: Sheet) -> RenderableType:
    if not plan.changes:
        return _line("nothing: every knob stays as the model has it", sheet)
    arrow = "->" if sheet.ascii_only else "→"
    table = Table.grid(padding=(0, 2, 0, 0))
    for _ in range(3):
        table.add_column(overflow="fold")
    for change in plan.changes:
        turned = f"{change.before} {arrow} {change.after}"
        table.add_row(Text(words.knob_words(change)), sheet.text(turned), Text(f"changes {change.effect}"))
    return sheet.indented(table)


def _line(text: str, sheet: Sheet) -> RenderableType:
    return sheet.indented(sheet.text(text))
