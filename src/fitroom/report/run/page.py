"""A run as one self-contained HTML page: no network, for phone and desktop, light and dark, screen and paper."""

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, TypeVar

from fitroom import __version__
from fitroom.report.run import results, sections
from fitroom.report.run.charts import make_memory_charts, make_plan_charts, make_training_charts
from fitroom.report.run.memory import render_memory
from fitroom.report.run.recipe import format_place, render_recipe
from fitroom.report.run.words import format_title, judge_run
from fitroom.report.shared.chart import Chart
from fitroom.report.shared.templates import dump_script_json, hash_script, load_asset, load_chart_script, render
from fitroom.runs.run import OTHER_SHAPE, Run

if TYPE_CHECKING:
    from markupsafe import Markup

T = TypeVar("T")

_SECTIONS: tuple[tuple[str, str, "Callable[[Run], Markup | None]"], ...] = (
    ("training", "Training", sections.render_training),
    ("memory", "Memory", render_memory),
    ("mistakes", "Mistakes", results.render_confusion),
    ("images", "Held-out images", results.render_samples),
    ("classes", "Classes", results.render_classes),
    ("recipe", "Recipe", render_recipe),
    ("plan", "Alternatives", sections.render_plan),
    ("events", "Events", sections.render_events),
    ("skipped", "Skipped files", sections.render_skipped),
    ("commands", "Commands", sections.render_commands),
    ("versions", "Versions", sections.render_versions),
)
"""The sections in order: the anchor, the heading, and what renders it; one that renders nothing is left out."""


def render_run_page(run: Run) -> str:
    """Return the whole page as text."""
    rendered = [(key, heading, _try_part(make, run, None)) for key, heading, make in _SECTIONS]
    charts: list[Chart] = []
    for make_charts in (make_training_charts, make_memory_charts, make_plan_charts):
        charts += _try_part(make_charts, run, charts[:0])
    script = load_chart_script()
    title = format_title(run)
    return render(
        "run/page.html",
        script_hash=hash_script(script),
        style=load_asset("base.css") + load_asset("charts.css"),
        script=script,
        data=dump_script_json([chart.to_dict() for chart in charts]),
        title=title,
        kicker=" · ".join(part for part in (title, format_place(run), _format_begun(run)) if part),
        verdict=judge_run(run),
        tiles=_try_part(sections.list_tiles, run, list[sections.Tile]()),
        sections=[(key, heading, body) for key, heading, body in rendered if body],
        missing=_list_missing(run),
        version=__version__,
    )


def _try_part(make: Callable[[Run], T], run: Run, nothing: T) -> T:
    """Make a part of the page; `nothing` where a file holds something that the part cannot be made of."""
    try:
        return make(run)
    except OTHER_SHAPE:
        return nothing


def _format_begun(run: Run) -> str:
    try:
        begun = datetime.fromisoformat(run.facts["begun"])
    except (KeyError, TypeError, ValueError):
        return ""
    return f"{begun.day} {begun:%B %Y, %H:%M}"


def _list_missing(run: Run) -> list[str]:
    """List what a reader might look for and not find, and why."""
    said = [f"{file} exists but cannot be read." for file in run.damaged]
    if not run.readings.points:
        said.append("No readings of memory and speed were kept.")
    if run.train_job and run.estimate is None and "estimate.json" not in run.damaged:
        said.append("There is no prediction of memory.")
    if run.train_job and run.state == "finished" and run.results is None and "results.json" not in run.damaged:
        said.append("The model was not evaluated on held-out images.")
    return said
