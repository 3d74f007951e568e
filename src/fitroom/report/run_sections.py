"""The sections of a run's page about training, events, skipped files and commands. One with nothing in it is empty."""

import shlex
from html import escape
from pathlib import Path
from typing import Any

from fitroom.report.markup import name, pairs, scrolling, table
from fitroom.report.run_charts import training_charts
from fitroom.report.run_record import Run
from fitroom.report.run_times import times
from fitroom.runs.layout import LOG_FILE, MODEL_FILE, SKIPPED_FILE

_MAX_EVENTS = 200
_MAX_SKIPPED = 500
_LONGEST_MESSAGE = 1000


def training(run: Run) -> str:
    """The curves, and where the time went."""
    charts = [chart.html() for chart in training_charts(run)]
    shown = f'<div class="charts">{"".join(charts)}</div>' if charts else ""
    return shown + times(run)


def events(run: Run) -> str:
    """What happened on the way."""
    shown = run.events[-_MAX_EVENTS:]
    more = len(run.events) - len(shown)
    said = f'<p class="muted">And {more:,} before, in {LOG_FILE}.</p>' if more else ""
    return f'<ol class="events">{"".join(map(_event, shown))}</ol>{said}' if shown else ""


def skipped(run: Run) -> str:
    """Files that were left out, each with the reason."""
    if not run.skipped:
        return ""
    rows = ([name(file), escape(reason)] for file, reason in run.skipped[:_MAX_SKIPPED])
    more = len(run.skipped) - _MAX_SKIPPED
    said = f'<p class="muted">And {more:,} more, in {SKIPPED_FILE}.</p>' if more > 0 else ""
    return scrolling(table(["file", "why"], rows, kind="texts"), "All files left out") + said


def again(run: Run) -> str:
    """The commands for doing it again and for using the model."""
    folder = shlex.quote(str(run.path))
    command = run.job.get("command")
    if isinstance(command, list) and command:
        program = "fitroom" if Path(str(command[0])).stem in ("fitroom", "__main__") else str(command[0])
        asked = shlex.join([program, *map(str, command[1:])])
        commands = [("Run it again", asked), ("Predict", f"fitroom predict {folder} picture.jpg")]
    else:
        model = str(run.path / MODEL_FILE)
        commands = [("Go on, or read the result", f"fitroom.fit(model, ..., run_dir={str(run.path)!r})")]
        commands += [("Use the model", f"keras.saving.load_model({model!r})")] if run.state == "finished" else []
    commands.append(("Make this report again", f"fitroom report {folder}"))
    return pairs([(head, f"<code>{escape(text)}</code>") for head, text in commands])


def versions(run: Run) -> str:
    """What it was made with."""
    known = dict(run.job.get("versions") or run.facts.get("versions") or {})
    named = ", ".join(f"{package} {version}" for package, version in known.items())
    return f"<p>{escape(named)}</p>" if named else ""


def _event(event: dict[str, Any]) -> str:
    time, kind, message = (str(event.get(part, "")) for part in ("time", "kind", "message"))
    when = time[:19].replace("T", " ")
    said = escape(message[:_LONGEST_MESSAGE])
    return f"<li><time>{escape(when)}</time> <b>{escape(kind)}</b> <span>{said}</span></li>\n"
