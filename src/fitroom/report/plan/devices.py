"""The plan for several cards that train together, as text."""

from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from fitroom.planning.devices import DevicesPlan
from fitroom.report.plan import words
from fitroom.report.shared.sheet import Sheet
from fitroom.units import format_bytes

_SPEED_NOTE = (
    "Speeds are predicted for each card alone: what reducing gradients costs between cards is not in them. Plans for "
    "several cards were never confirmed on several real cards."
)

_SHARDED_NOTE = (
    "Weights and optimizer state do not fit on each card beside a share of the batch. They are divided, and the "
    "cards exchange what each layer needs of them, which is not in the speeds. To train so, in Python: "
    "with fitroom.devices({count}, shard_weights=True)."
)


def render_devices_plan(plan: DevicesPlan, title: str) -> RenderableType:
    """Lay out a row for each kind of card, and the recipe that all of them use."""
    return _DevicesSheet(plan, title)


@dataclass(frozen=True)
class _DevicesSheet:
    """Laid out when printed, because only then is the encoding known."""

    plan: DevicesPlan
    title: str

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        sheet, plan = Sheet.of(options), self.plan
        yield sheet.make_text(self.title, "bold")
        how = words.format_recipe(plan.recipe, max(plan.samples), precision=plan.plan.estimate.precision)
        divided = "weights and optimizer state divided among them, " if plan.sharded else ""
        yield sheet.make_text(f"fits on all cards with {divided}{how}", "bold green")
        yield Text()
        yield _lay_out(plan, sheet)
        yield Text()
        if plan.seconds_per_step is not None:
            rate = plan.batch_size / plan.seconds_per_step
            yield sheet.make_text(f"at most {rate:,.0f} samples a second together, predicted")
        yield sheet.make_text(plan.why)
        if plan.sharded:
            yield sheet.make_text(_SHARDED_NOTE.format(count=len(plan.samples)))
        yield sheet.make_text(_SPEED_NOTE)


def _lay_out(plan: DevicesPlan, sheet: Sheet) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.show_header = True
    for head in ("cards", "samples", "needs", "of", "samples\na second", ""):
        table.add_column(Text(head, "bold"), justify="left" if head in ("cards", "") else "right", overflow="fold")
    for each in plan.shares:
        table.add_row(
            sheet.make_text(f"{each.count} x {each.card.name}"),
            Text(str(each.share)),
            Text(format_bytes(each.need.required_bytes)),
            Text(format_bytes(each.plan.budget.bytes)),
            Text(words.format_rate(each.need.speed)),
            Text("binds" if len(plan.shares) > 1 and each.card.name == plan.binding else ""),
        )
    return table
