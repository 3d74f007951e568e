"""What a plan chose from, as a table in a terminal; in words where the terminal is too narrow for one."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich.console import Group, JustifyMethod, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from fitroom.planning.option import Option
from fitroom.planning.result import Plan
from fitroom.report import plan_words as words
from fitroom.report.sheet import Sheet
from fitroom.units import format_bytes

_GAP, _BRIEF_GAP = 2, 1
_SHORT = {"batch statistics": "statistics", "the task itself": "task"}
_NARROWEST_EFFECTS = 11
"""Of the longest single one, "statistics,"."""


@dataclass(frozen=True)
class _Column:
    head: str
    cells: list[str]
    justify: JustifyMethod = "left"
    may_wrap: bool = False

    @property
    def width(self) -> int:
        """What it takes at least."""
        longest = max(map(len, [*self.head.split("\n"), *self.cells]))
        return min(longest, _NARROWEST_EFFECTS) if self.may_wrap else longest


def frontier_table(plan: Plan, sheet: Sheet, *, all_recipes: bool = False) -> RenderableType:
    """Recipes with memory, speed and price, fastest first; the chosen one is marked.

    Those near the chosen one, or with `all_recipes` every one.
    """
    options = plan.frontier if all_recipes else words.shown_options(plan)
    left_out = len(plan.frontier) - len(options)
    said = [f"and {left_out} more: --all-recipes shows them, plan.frontier has them"] if left_out else []
    for brief, gap in ((False, _GAP), (True, _BRIEF_GAP)):
        columns = _columns(plan, options, sheet, brief=brief)
        if sum(column.width + gap for column in columns) <= sheet.width:
            body = _table(plan, options, columns, gap)
            said += ["~ is interpolated, the others are confirmed"] if brief else []
            break
    else:
        body = _list(plan, options, sheet)
    return sheet.indented(Group(body, *map(sheet.text, said)))


def _columns(plan: Plan, options: Sequence[Option], sheet: Sheet, *, brief: bool) -> list[_Column]:
    """One for each thing that differs between recipes, then their price."""

    def knob(head: str, said: Callable[[Option], str], justify: JustifyMethod = "left") -> list[_Column]:
        cells = [said(option) for option in options]
        return [_Column(head, cells, justify)] if len(set(cells)) > 1 else []

    def needed(option: Option) -> str:
        return ("~" if brief and not option.confirmed else "") + format_bytes(option.required_bytes)

    mark = "*" if sheet.ascii_only else "▸"
    sure = _Column("memory is", ["confirmed" if option.confirmed else "interpolated" for option in options])
    return [
        _Column("", [mark if words.is_chosen(plan, option) else "" for option in options]),
        _Column("at\nonce", [f"{option.micro_batch}" for option in options], "right"),
        *knob("precision", lambda option: option.recipe.precision or plan.estimate.precision),
        *knob("recomputed", lambda option: words.remat_words(option.recipe) or "nothing"),
        *knob("jit", lambda option: words.jit_words(option.recipe)),
        *knob("optimizer", lambda option: option.recipe.optimizer or "own"),
        *knob("pixels", lambda option: str(option.recipe.image_size or "own"), "right"),
        *knob("frozen", lambda option: str(option.recipe.frozen_layers or "own"), "right"),
        _Column("needs\nat least", [needed(option) for option in options], "right"),
        _Column("samples\na second", [words.rate(option.speed) for option in options], "right"),
        _Column("changes", [_effects(option) for option in options], may_wrap=True),
        *([] if brief else [sure]),
        _Column("fits", ["yes" if option.fits else "no" for option in options]),
    ]


def _table(plan: Plan, options: Sequence[Option], columns: list[_Column], gap: int) -> RenderableType:
    table = Table.grid(padding=(0, gap, 0, 0))
    table.show_header = True
    for column in columns:
        head = Text(column.head, "bold")
        table.add_column(head, justify=column.justify, no_wrap=not column.may_wrap, vertical="top")
    for option, row in zip(options, zip(*(column.cells for column in columns), strict=True), strict=True):
        table.add_row(*map(Text, row), style=_style(plan, option))
    return table


def _list(plan: Plan, options: Sequence[Option], sheet: Sheet) -> RenderableType:
    mark = "*" if sheet.ascii_only else "▸"
    said: list[RenderableType] = []
    for option in options:
        chosen, style = words.is_chosen(plan, option), _style(plan, option)
        recipe = words.recipe_words(option.recipe, plan.batch_size, precision=plan.estimate.precision)
        size = f"{format_bytes(option.required_bytes)} ({'confirmed' if option.confirmed else 'interpolated'})"
        price = f"{size}, {words.rate(option.speed)} samples a second, changes {words.effects(option.changes)}"
        said.append(sheet.text(f"{mark if chosen else '-'} {recipe}", style))
        said.append(Padding(sheet.text(f"{price}, {'fits' if option.fits else 'does NOT fit'}", style), (0, 0, 0, 2)))
    return Group(*said)


def _effects(option: Option) -> str:
    said = words.effects(option.changes)
    for effect, short in _SHORT.items():
        said = said.replace(effect, short)
    return said


def _style(plan: Plan, option: Option) -> str:
    return "bold green" if words.is_chosen(plan, option) else "" if option.fits else "dim"
