"""The sections of a run's page about training, plan, events, skipped files and commands, and the figures on top.

A section with nothing in it is None.
"""

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fitroom.report.plan import words as plan_words
from fitroom.report.plan.page import list_changes
from fitroom.report.run.charts import make_plan_charts, make_training_charts
from fitroom.report.shared.templates import render_macro
from fitroom.report.shared.words import format_duration, format_share
from fitroom.runs.run import Run
from fitroom.units import format_bytes

if TYPE_CHECKING:
    from markupsafe import Markup

_TEMPLATE = "run/sections.html"
_MAX_EVENTS = 200
_MAX_SKIPPED = 500
_LONGEST_MESSAGE = 1000
_TIMES = {
    "planning": ("--muted", "planning, with the start of the framework and the scan of the images"),
    "compiling": ("--backward", "compiling, with the first step of each recipe"),
    "training": ("--first", "training"),
    "validating": ("--second", "validation after each epoch"),
    "evaluating": ("--second", "evaluation of the result"),
}
"""What the time of a run is spent on: the colour of its bar, and what it is."""


@dataclass(frozen=True, kw_only=True)
class Tile:
    """A figure on top of the page, with its name and what it is out of."""

    name: str
    figure: str
    meaning: str
    share: float | None = None
    """Of the whole, where there is one: drawn as a bar."""


@dataclass(frozen=True, kw_only=True)
class Bar:
    """One of several bars on a common scale."""

    name: str
    value: float
    text: str
    """The value for reading."""

    colour: str
    """The name of one of the style sheet's."""


def list_tiles(run: Run) -> list[Tile]:
    """Return the figures that matter most: results, memory, time and speed, as far as they are known."""
    tiles = []
    if run.results and run.results.num_images:
        right, num_images = run.results.num_right, run.results.num_images
        meaning = f"{right:,} of {num_images:,} held-out images"
        tiles.append(
            Tile(name="accuracy", figure=format_share(right / num_images), meaning=meaning, share=right / num_images)
        )
    if (peak := run.readings.peak_bytes) is not None:
        limit = run.limit_bytes
        meaning = f"at the peak, of {format_bytes(limit)}" if limit else "at the peak"
        share = min(peak / limit, 1.0) if limit else None
        tiles.append(Tile(name="memory", figure=format_bytes(peak), meaning=meaning, share=share))
    if run.seconds:
        done, asked = run.num_epochs, run.facts["epochs"]
        share, meaning = min(done / max(asked, 1), 1.0), f"{done} of {asked} epochs"
        tiles.append(Tile(name="time", figure=format_duration(run.seconds), meaning=meaning, share=share))
    if (speed := run.readings.pictures_per_second) is not None:
        tiles.append(Tile(name="speed", figure=f"{speed:,.0f} / s", meaning="training images, on average"))
    return tiles


def render_training(run: Run) -> "Markup | None":
    """Render the curves, and where the time went."""
    charts, bars = make_training_charts(run), _list_times(run)
    meanings = [_TIMES[bar.name][1] for bar in bars if _TIMES[bar.name][1] != bar.name]
    return render_macro(_TEMPLATE, "training", charts, bars, _join(meanings)) if charts or bars else None


def render_plan(run: Run) -> "Markup | None":
    """Render the plan: verdict, chart, what the recipe changes, and what comes next where memory runs out."""
    plan = run.plan
    if plan is None:
        return None
    speed = plan_words.format_speed(plan.speed, plan.batch_size)
    about = f"The plan {plan_words.format_verdict(plan)}. On {plan.gpu}: {speed}."
    fallbacks = plan_words.format_fallbacks(plan)
    return render_macro(_TEMPLATE, "plan", about, make_plan_charts(run), list_changes(plan), fallbacks)


def render_events(run: Run) -> "Markup | None":
    """Render the events of the run."""
    events = [_read_event(event) for event in run.events[-_MAX_EVENTS:]]
    return render_macro(_TEMPLATE, "events", events, len(run.events) - len(events)) if events else None


def render_skipped(run: Run) -> "Markup | None":
    """Render the skipped files, each with the reason."""
    shown = run.skipped[:_MAX_SKIPPED]
    return render_macro(_TEMPLATE, "skipped", shown, len(run.skipped) - len(shown)) if shown else None


def render_commands(run: Run) -> "Markup | None":
    """Render the commands that repeat or resume the run, and that use the model."""
    folder = shlex.quote(str(run.path))
    if command := run.train_job.command:
        program = "fitroom" if Path(str(command[0])).stem in ("fitroom", "__main__") else str(command[0])
        asked = shlex.join([program, *map(str, command[1:])])
        commands = [("Run it again", asked), ("Predict", f"fitroom predict {folder} image.jpg")]
    else:
        model = str(run.path / "model.keras")
        commands = [("Resume, or read the result", f"fitroom.fit(model, ..., run_dir={str(run.path)!r})")]
        commands += [("Use the model", f"keras.saving.load_model({model!r})")] if run.state == "finished" else []
    return render_macro(_TEMPLATE, "commands", [*commands, ("Make this report again", f"fitroom report {folder}")])


def render_versions(run: Run) -> "Markup | None":
    """Render the versions of the packages that the run used."""
    known = dict(run.train_job.versions or run.facts.get("versions") or {})
    named = ", ".join(f"{package} {version}" for package, version in known.items())
    return render_macro(_TEMPLATE, "versions", named) if named else None


def _list_times(run: Run) -> list[Bar]:
    """Return a bar for each part of the time; none where it was not counted."""
    spent = run.times | dict(run.readings.spent_seconds)
    if not run.readings.spent_seconds:
        return []
    return [
        Bar(name=name, value=spent[name], text=_format_seconds(spent[name]), colour=colour)
        for name, (colour, _) in _TIMES.items()
        if spent.get(name)
    ]


def _read_event(event: dict[str, Any]) -> tuple[str, str, str]:
    """Return time, kind and message."""
    time, kind, message = (str(event.get(part, "")) for part in ("time", "kind", "message"))
    return time[:19].replace("T", " "), kind, message[:_LONGEST_MESSAGE]


def _format_seconds(seconds: float) -> str:
    return format_duration(seconds) if seconds >= 10 else f"{seconds:.1f} s"


def _join(meanings: list[str]) -> str:
    said = "; ".join(meanings)
    return f"{said[:1].upper()}{said[1:]}." if said else ""
