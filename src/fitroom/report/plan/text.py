"""A plan for reading in a terminal.

Nothing here prints; what is returned, `rich` can print:

    rich.console.Console().print(render_plan_text(plan))
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, Group, JustifyMethod, RenderableType, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from fitroom.planning.option import Option
from fitroom.planning.result import Plan
from fitroom.report.plan import words
from fitroom.report.shared.sheet import Sheet
from fitroom.units import format_bytes

_GAP, _BRIEF_GAP = 2, 1
_SHORT = {"batch statistics": "statistics", "the task itself": "task"}
_NARROWEST_EFFECTS = 11
"""The width of the longest single effect, "statistics,"."""


def render_plan_text(plan: Plan, *, all_recipes: bool = False) -> RenderableType:
    """Lay out the whole plan: verdict, memory, speed, what it changes and why, and the alternatives.

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
        yield sheet.make_text(words.format_headline(plan), "bold")
        yield sheet.make_text(words.format_verdict(plan), "bold green")
        for title, body in _make_sections(plan, sheet, all_recipes=self.all_recipes):
            yield Text()
            yield Text(title, "bold")
            yield from body


def _make_sections(plan: Plan, sheet: Sheet, *, all_recipes: bool) -> Iterator[tuple[str, list[RenderableType]]]:
    yield "Memory", [_lay_out_memory(plan, sheet), _lay_out_line(words.format_reserve(plan), sheet)]
    yield "Speed", [_lay_out_line(words.format_speed(plan.speed, plan.batch_size), sheet)]
    yield "What it changes about the result", [_lay_out_changes(plan, sheet)]
    yield "Why", [_lay_out_line(plan.why, sheet)]
    if plan.frontier:
        yield "Alternatives", [_lay_out_alternatives(plan, sheet, all_recipes=all_recipes)]
    if plan.fallbacks:
        yield "If memory runs out anyway", [_lay_out_line(words.format_fallbacks(plan), sheet)]
    if plan.notes:
        yield "Notes", [sheet.list_sentences(plan.notes)]


def _lay_out_memory(plan: Plan, sheet: Sheet) -> RenderableType:
    """Lay out the sizes; the budget is a row itself, so that all bars are parts of its."""
    sizes = [
        ("peak", plan.estimate.peak_bytes),
        ("needs at least", plan.estimate.required_bytes),
        ("stays free", max(plan.free_bytes, 0)),
        ("budget", plan.budget.bytes),
    ]
    return sheet.draw_bars(sizes, whole_bytes=plan.budget.bytes)


def _lay_out_changes(plan: Plan, sheet: Sheet) -> RenderableType:
    if not plan.changes:
        return _lay_out_line("nothing: every knob stays as the model has it", sheet)
    arrow = "->" if sheet.ascii_only else "→"
    table = Table.grid(padding=(0, 2, 0, 0))
    for _ in range(3):
        table.add_column(overflow="fold")
    for change in plan.changes:
        turned = f"{change.before} {arrow} {change.after}"
        table.add_row(Text(words.format_knob(change)), sheet.make_text(turned), Text(f"changes {change.effect}"))
    return sheet.indent(table)


def _lay_out_line(text: str, sheet: Sheet) -> RenderableType:
    return sheet.indent(sheet.make_text(text))


@dataclass(frozen=True)
class _Column:
    head: str
    cells: list[str]
    justify: JustifyMethod = "left"
    may_wrap: bool = False

    @property
    def width(self) -> int:
        """The least width that it takes."""
        longest = max(map(len, [*self.head.split("\n"), *self.cells]))
        return min(longest, _NARROWEST_EFFECTS) if self.may_wrap else longest


def _lay_out_alternatives(plan: Plan, sheet: Sheet, *, all_recipes: bool = False) -> RenderableType:
    """Lay out recipes with memory, speed and price, fastest first; the chosen one is marked.

    Those near the chosen one, or with `all_recipes` every one.
    """
    options = plan.frontier if all_recipes else words.select_options(plan)
    left_out = len(plan.frontier) - len(options)
    said = [f"and {left_out} more: --all-recipes shows them, plan.frontier has them"] if left_out else []
    for brief, gap in ((False, _GAP), (True, _BRIEF_GAP)):
        columns = _make_columns(plan, options, sheet, brief=brief)
        if sum(column.width + gap for column in columns) <= sheet.width:
            body = _lay_out_table(plan, options, columns, gap)
            said += ["~ is interpolated, the others are confirmed"] if brief else []
            break
    else:
        body = _lay_out_list(plan, options, sheet)
    return sheet.indent(Group(body, *map(sheet.make_text, said)))


def _make_columns(plan: Plan, options: Sequence[Option], sheet: Sheet, *, brief: bool) -> list[_Column]:
    """Make a column for each knob that differs between recipes, then for their price."""

    def knob(head: str, said: Callable[[Option], str], justify: JustifyMethod = "left") -> list[_Column]:
        cells = [said(option) for option in options]
        return [_Column(head, cells, justify)] if len(set(cells)) > 1 else []

    def needed(option: Option) -> str:
        return ("~" if brief and not option.confirmed else "") + format_bytes(option.required_bytes)

    mark = "*" if sheet.ascii_only else "▸"
    sure = _Column("memory is", ["confirmed" if option.confirmed else "interpolated" for option in options])
    return [
        _Column("", [mark if words.is_chosen(plan, option) else "" for option in options]),
        _Column("micro-\nbatch", [f"{option.micro_batch}" for option in options], "right"),
        *knob("precision", lambda option: option.recipe.precision or plan.estimate.precision),
        *knob("recomputed", lambda option: words.format_remat(option.recipe) or "nothing"),
        *knob("jit", lambda option: words.format_jit(option.recipe)),
        *knob("optimizer", lambda option: option.recipe.optimizer or "own"),
        *knob("pixels", lambda option: str(option.recipe.image_size or "own"), "right"),
        *knob("frozen", lambda option: str(option.recipe.frozen_layers or "own"), "right"),
        _Column("needs\nat least", [needed(option) for option in options], "right"),
        _Column("samples\na second", [words.format_rate(option.speed) for option in options], "right"),
        _Column("changes", [_format_effects(option) for option in options], may_wrap=True),
        *([] if brief else [sure]),
        _Column("fits", ["yes" if option.fits else "no" for option in options]),
    ]


def _lay_out_table(plan: Plan, options: Sequence[Option], columns: list[_Column], gap: int) -> RenderableType:
    table = Table.grid(padding=(0, gap, 0, 0))
    table.show_header = True
    for column in columns:
        head = Text(column.head, "bold")
        table.add_column(head, justify=column.justify, no_wrap=not column.may_wrap, vertical="top")
    for option, row in zip(options, zip(*(column.cells for column in columns), strict=True), strict=True):
        table.add_row(*map(Text, row), style=_choose_style(plan, option))
    return table


def _lay_out_list(plan: Plan, options: Sequence[Option], sheet: Sheet) -> RenderableType:
    mark = "*" if sheet.ascii_only else "▸"
    said: list[RenderableType] = []
    for option in options:
        chosen, style = words.is_chosen(plan, option), _choose_style(plan, option)
        recipe = words.format_recipe(option.recipe, plan.batch_size, precision=plan.estimate.precision)
        size = f"{format_bytes(option.required_bytes)} ({'confirmed' if option.confirmed else 'interpolated'})"
        effects = words.format_effects(option.changes)
        price = f"{size}, {words.format_rate(option.speed)} samples a second, changes {effects}"
        said.append(sheet.make_text(f"{mark if chosen else '-'} {recipe}", style))
        said.append(
            Padding(sheet.make_text(f"{price}, {'fits' if option.fits else 'does NOT fit'}", style), (0, 0, 0, 2))
        )
    return Group(*said)


def _format_effects(option: Option) -> str:
    said = words.format_effects(option.changes)
    for effect, short in _SHORT.items():
        said = said.replace(effect, short)
    return said


def _choose_style(plan: Plan, option: Option) -> str:
    return "bold green" if words.is_chosen(plan, option) else "" if option.fits else "dim"
