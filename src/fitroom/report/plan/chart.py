"""The alternatives of a plan as an interactive chart, and as a table."""

from collections.abc import Sequence
from typing import Any

from fitroom.planning.option import Option
from fitroom.planning.result import Plan
from fitroom.report.plan import words
from fitroom.report.plan.points import Point, Points, find_points
from fitroom.report.shared.chart import Chart, FigureTable, Series
from fitroom.report.shared.palette import GROUP_COLOURS
from fitroom.units import format_bytes

_SHAPES = ("circle", "triangle", "rect", "rectRot")


def make_frontier_chart(plan: Plan) -> Chart:
    """Make the chart of a plan that has a frontier: memory across, speed up, the budget as a line."""
    found = find_points(plan)
    budget = format_bytes(found.budget_bytes)
    title = f"{found.up_words.capitalize()}, by the memory that a recipe needs"
    return Chart(
        key="frontier",
        title=f"{title}, of {budget}" if found.budget_is_far else title,
        summary=f"{len(found.points)} recipes for a budget of {budget}. The plan {words.format_verdict(plan)}.",
        unit="rate" if found.has_speed else "number",
        across="bytes",
        at=[point.across_bytes for point in found.points],
        labels=[point.name for point in found.points],
        series=_make_series(found),
        moments=[]
        if found.budget_is_far
        else [{"at": found.budget_bytes, "name": f"budget {budget}", "colour": "--alarm"}],
        details=[point.details for point in found.points],
        figures=_make_table(plan),
    )


def _make_table(plan: Plan) -> FigureTable:
    """List all recipes with their price, the fastest first."""
    chosen = [place for place, option in enumerate(plan.frontier) if words.is_chosen(plan, option)]
    return FigureTable(
        heads=("recipe", "needs at least", "samples a second", "changes", "memory is", "fits"),
        rows=[_make_row(plan, option) for option in plan.frontier],
        bold_row=chosen[0] if chosen else None,
    )


def _make_row(plan: Plan, option: Option) -> list[str]:
    return [
        words.format_recipe(option.recipe, plan.batch_size, precision=plan.estimate.precision),
        format_bytes(option.required_bytes),
        words.format_rate(option.speed),
        words.format_effects(option.changes),
        "confirmed" if option.confirmed else "interpolated",
        "yes" if option.fits else "no",
    ]


def _make_series(found: Points) -> list[Series]:
    def dots(name: str, points: Sequence[Point], **looks: Any) -> list[Series]:
        values = [point.up if point in points else None for point in found.points]
        return [Series(name=name, values=values, **looks)] if points else []

    groups = [
        one
        for place, (name, points) in enumerate(found.groups.items())
        for one in dots(
            name, points, colour=GROUP_COLOURS[place % len(GROUP_COLOURS)], shape=_SHAPES[place % len(_SHAPES)]
        )
    ]
    chosen = dots("this plan", found.chosen, colour="--ink", shape="star", is_large=True)
    return [*chosen, *groups, *dots("does not fit", found.too_large, colour="--muted", shape="cross")]
