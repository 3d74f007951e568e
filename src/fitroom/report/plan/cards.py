"""Which recipe a model gets on every card, as one table."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from fitroom.planning.cards import CardPlan
from fitroom.report.plan import words
from fitroom.report.shared.sheet import Sheet
from fitroom.units import format_bytes

_EXPLANATION = (
    "Memory was estimated on a card of each kind and is interpolated for the others, with a larger reserve; "
    "`fitroom plan --gpu NAME` confirms one. Cards of AMD and Apple are judged by their memory and datasheet alone."
)


def render_cards_table(found: Sequence[CardPlan], title: str) -> RenderableType:
    """Lay out a row for each card, by memory and then by speed, with a summary on top."""
    in_order = sorted(found, key=lambda each: (each.card.memory_bytes, -_get_samples_per_second(each)))
    return _CardsTable(tuple(in_order), title)


@dataclass(frozen=True)
class _CardsTable:
    """Laid out when printed, because only then is the encoding known."""

    rows: tuple[CardPlan, ...]
    title: str

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        sheet = Sheet.of(options)
        yield sheet.make_text(f"{self.title}{self._find_precision(', ')}", "bold")
        yield sheet.make_text(_format_summary(self.rows), "bold green")
        yield Text()
        yield _lay_out_table(self.rows, with_precision=not self._find_precision(), sheet=sheet)
        yield Text()
        yield sheet.make_text(_EXPLANATION)

    def _find_precision(self, before: str = "") -> str:
        """Return the precision of all rows, where it is the same; otherwise nothing."""
        found = {each.option.recipe.precision for each in self.rows if each.option}
        return f"{before}{found.pop()}" if len(found) == 1 and None not in found else ""


def _format_summary(rows: Sequence[CardPlan]) -> str:
    able = [each for each in rows if each.option]
    whole = [each for each in able if each.option and each.option.micro_batch >= each.batch_size]
    said = [f"{len(able)} of {len(rows)} cards can"]
    said += [f"the smallest is {able[0].card.name}"] if able else []
    said += [f"the smallest with whole batches {whole[0].card.name}"] if whole else []
    return ", ".join(said)


def _lay_out_table(rows: Sequence[CardPlan], *, with_precision: bool, sheet: Sheet) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.show_header = True
    for head in ("card", "memory", "", "recipe", "samples\na second"):
        is_number = head in ("memory", "samples\na second")
        # Folded where there is no room, because rich's ellipsis is not ASCII.
        table.add_column(Text(head, "bold"), justify="right" if is_number else "left", overflow="fold")
    for each in rows:
        cells = [sheet.make_text(each.card.name), Text(format_bytes(each.card.memory_bytes))]
        if each.option is None:
            reason = f"nothing fits in {format_bytes(each.budget.bytes)}"
            table.add_row(*cells, Text("no"), Text(reason), Text(""), style="dim")
            continue
        recipe = each.option.recipe if with_precision else replace(each.option.recipe, precision=None)
        said = words.format_recipe(recipe, each.batch_size)
        table.add_row(*cells, Text("fits", "green"), sheet.make_text(said), Text(words.format_rate(each.option.speed)))
    return table


def _get_samples_per_second(each: CardPlan) -> float:
    return each.option.speed.samples_per_second if each.option and each.option.speed else 0.0
