"""A plan as a file to look at: a picture or a page."""

from pathlib import Path

from fitroom.planning.result import Plan
from fitroom.report.plan_figure import draw_plan
from fitroom.report.plan_page import plan_page
from fitroom.report.plot import save_to_look_at


def save_plan_plot(plan: Plan, path: Path) -> None:
    """Write what there was to choose from as a picture (`.svg`, `.png`) or a self-contained page (`.html`)."""
    save_to_look_at(path, page=lambda: plan_page(plan), picture=lambda kind: draw_plan(plan, kind))
