"""A run as one self-contained HTML page: no network, for phone and desktop, light and dark, screen and paper."""

from collections.abc import Callable
from datetime import datetime
from html import escape
from pathlib import Path
from string import Template
from typing import TypeVar

from fitroom.files.durable import open_atomic
from fitroom.report import run_result_sections, run_sections
from fitroom.report.chart_script import chart_script, hash_of
from fitroom.report.markup import asset, script_json
from fitroom.report.run_chart import Chart
from fitroom.report.run_charts import memory_charts, training_charts
from fitroom.report.run_memory import memory
from fitroom.report.run_plan import plan, plan_charts
from fitroom.report.run_recipe import recipe, where
from fitroom.report.run_record import OTHER_SHAPE, Run, open_run
from fitroom.report.run_tiles import tiles
from fitroom.report.run_words import title, verdict
from fitroom.runs.layout import ESTIMATE_FILE, REPORT_FILE, RESULTS_FILE
from fitroom.runs.place import not_writable
from fitroom.version import __version__

T = TypeVar("T")

_SECTIONS = (
    ("training", "Training", run_sections.training),
    ("memory", "Memory", memory),
    ("mistakes", "What it mistakes", run_result_sections.confusion),
    ("pictures", "Pictures it never saw", run_result_sections.samples),
    ("classes", "Classes", run_result_sections.classes),
    ("recipe", "The recipe", recipe),
    ("plan", "What there was to choose from", plan),
    ("events", "What happened", run_sections.events),
    ("skipped", "Files left out", run_sections.skipped),
    ("again", "Do it again", run_sections.again),
    ("versions", "Made with", run_sections.versions),
)


def write_report(run_dir: str | Path) -> Path:
    """Write `report.html` into a run folder, from what is there; returns its path."""
    return write_page(open_run(run_dir))


def write_page(run: Run) -> Path:
    """Write the page of a run into its folder."""
    path = run.path / REPORT_FILE
    # The name of a picture may hold bytes that are no text.
    page = run_page(run).encode("utf-8", "backslashreplace")
    try:
        with open_atomic(path) as file:
            file.write(page)
    except OSError as error:
        raise not_writable(run.path, error) from error
    return path


def is_whole(path: Path) -> bool:
    """Whether a report is there to its last line."""
    try:
        with open(path, "rb") as file:
            file.seek(-min(64, path.stat().st_size), 2)
            return file.read().rstrip().endswith(b"</html>")
    except OSError:
        return False


def run_page(run: Run) -> str:
    """The whole page as text. Whatever comes from the run is escaped."""
    said = verdict(run)
    made = [(key, heading, _part(body, run, "")) for key, heading, body in _SECTIONS]
    shown = [(key, heading, body) for key, heading, body in made if body]
    charts: list[Chart] = []
    for of in (training_charts, memory_charts, plan_charts):
        charts += _part(of, run, charts[:0])
    script = chart_script()
    return Template(asset("run.html")).substitute(
        policy=hash_of(script),
        title=escape(title(run)),
        style=asset("base.css") + asset("run.css"),
        kicker=escape(" · ".join(part for part in (title(run), where(run), _when(run)) if part)),
        headline=escape(said.headline),
        sentence=escape(said.sentence),
        tone=said.tone,
        tiles=_part(tiles, run, ""),
        links="\n".join(f'<a href="#{key}">{heading}</a>' for key, heading, _ in shown),
        sections="\n\n".join(
            f'<section id="{key}" aria-labelledby="h-{key}">\n<h2 id="h-{key}">{heading}</h2>\n{body}\n</section>'
            for key, heading, body in shown
        ),
        missing=_missing(run),
        version=__version__,
        data=script_json([chart.to_dict() for chart in charts]),
        script=script,
    )


def _part(make: Callable[[Run], T], run: Run, nothing: T) -> T:
    """A part of the page; none where a file says something that it cannot be made of."""
    try:
        return make(run)
    except OTHER_SHAPE:
        return nothing


def _when(run: Run) -> str:
    try:
        begun = datetime.fromisoformat(run.facts["begun"])
    except (KeyError, TypeError, ValueError):
        return ""
    return f"{begun.day} {begun:%B %Y, %H:%M}"


def _missing(run: Run) -> str:
    """What a reader might look for in vain, and why."""
    said = [f"{file} is there but cannot be read." for file in run.damaged]
    if not run.readings.points:
        said.append("No readings of memory and speed were kept.")
    if run.job and run.estimate is None and ESTIMATE_FILE not in run.damaged:
        said.append("There is no prediction of memory.")
    if run.job and run.state == "finished" and run.results is None and RESULTS_FILE not in run.damaged:
        said.append("The model was not tried on pictures held back.")
    return "".join(f"<p>{escape(sentence)}</p>" for sentence in said)
