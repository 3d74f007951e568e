"""What a run folder tells, read as far as possible: a killed run leaves files out or cuts them short."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, TypeVar

from fitroom.display import HtmlDisplay, write_report
from fitroom.errors import InputError
from fitroom.files.durable import read_json
from fitroom.memory.estimate import Estimate
from fitroom.planning.result import Plan
from fitroom.runs import layout
from fitroom.runs.job import Job
from fitroom.runs.readings import Readings, parse_finite, thin_readings
from fitroom.runs.record import read_run
from fitroom.runs.results import Results

T = TypeVar("T")

OTHER_SHAPE = (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError, InputError)
"""What reading raises where something else was written than expected."""

RunState = Literal["finished", "interrupted", "running", "stopped", "unfinished"]
"""stopped: it ended without saying so. unfinished: whether it still runs cannot be told."""


@dataclass(frozen=True, kw_only=True)
class Report(HtmlDisplay):
    """A written report: `path` is the HTML file. In a notebook it shows the page."""

    path: Path
    verdict: str


@dataclass(frozen=True, kw_only=True)
class Run(HtmlDisplay):
    """One training as its folder tells of it: how it stands, its history, what happened, what it took."""

    path: Path
    state: RunState
    facts: dict[str, Any] = field(repr=False)
    """What `run.json` says: epochs, batch size, backend, seed, recipe, versions."""

    history: dict[str, list[float | None]] = field(repr=False)
    """Each metric, a number an epoch; None where it was not finite."""

    events: tuple[dict[str, Any], ...] = field(repr=False)
    """What happened, each with "time", "kind" and "message"."""

    train_job: Job = field(repr=False)
    """What `fitroom train` was asked for and chose; empty for a run of `fitroom.fit`."""

    plan: Plan | None = field(repr=False)
    estimate: Estimate | None = field(repr=False)
    readings: Readings = field(repr=False)
    results: Results | None = field(repr=False)
    skipped: tuple[tuple[str, str], ...] = field(repr=False)
    """Files that were left out, each with the reason."""

    times: dict[str, float] = field(default_factory=dict, repr=False)
    """Seconds that `fitroom train` spent on planning and evaluation."""

    damaged: tuple[str, ...] = ()
    """Names of files that are there and cannot be read."""

    @property
    def num_epochs(self) -> int:
        """How many epochs are done."""
        return max(map(len, self.history.values()), default=0)

    @property
    def job(self) -> dict[str, Any]:
        """The same as `job.json` has it."""
        return self.train_job.values

    @property
    def limit_bytes(self) -> int | None:
        """The budget that was given, or else the allocator's limit."""
        given = self.train_job.budget.bytes
        return self.readings.limit_bytes if given is None else given

    @property
    def seconds(self) -> float | None:
        """How long it trained; the time between a stop and a resume does not count."""
        begun, ended = parse_time(self.facts.get("begun")), parse_time(self.facts.get("updated"))
        was_resumed = any(event.get("kind") == "resumed" for event in self.events)
        if self.state == "finished" and not was_resumed and begun is not None and ended is not None:
            return ended - begun
        return self.readings.seconds or None

    def report(self) -> Report:
        """Write `report.html` into the folder. In a notebook the report shows itself."""
        path, verdict = write_report(self)
        return Report(path=path, verdict=verdict)


def open_run(run_dir: str | Path) -> Run:
    """Read a run folder, of a run that is finished, unfinished or under way.

    >>> run = fitroom.open_run("runs/a")  # doctest: +SKIP
    >>> run.state, run.history["loss"], run.report().path  # doctest: +SKIP
    """
    folder = Path(run_dir).expanduser()
    facts = read_run(folder / layout.RUN_FILE)
    if facts is None:
        raise InputError(
            f"There is no run in {folder}: it has no {layout.RUN_FILE}.",
            hint="give the folder that `fitroom train` named, or the `run_dir` of fitroom.fit",
        )
    reader = _Reader(folder)
    events = tuple(reader.read_lines(layout.LOG_FILE))
    resumed = [parse_time(event.get("time")) for event in events if event.get("kind") == "resumed"]
    skipped = reader.read_lines(layout.SKIPPED_FILE)
    job = reader.read(layout.JOB_FILE, lambda values: Job.from_dict(dict(values))) or Job()
    return Run(
        path=folder,
        state=_find_state(folder, facts),
        facts=facts,
        history=reader.read(layout.HISTORY_FILE, _parse_history) or {},
        events=events,
        train_job=job,
        plan=_parse_plan(job.plan) or reader.read(layout.PLAN_FILE, Plan.from_dict),
        estimate=reader.read(layout.ESTIMATE_FILE, Estimate.from_dict),
        readings=thin_readings(
            reader.read_lines(layout.READINGS_FILE), resumed=[time for time in resumed if time is not None]
        ),
        results=reader.read(layout.RESULTS_FILE, Results.from_dict),
        skipped=tuple((str(line.get("file", "")), str(line.get("reason", ""))) for line in skipped),
        times=reader.read(layout.TIMES_FILE, _parse_times) or {},
        damaged=tuple(reader.damaged),
    )


class _Reader:
    """Reads what is there and remembers what could not be read."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.damaged: list[str] = []

    def read(self, name: str, convert: Callable[[Any], T]) -> T | None:
        """A file of JSON, or None where it is not there or not whole."""
        try:
            return convert(read_json(self.folder / name))
        except FileNotFoundError:
            return None
        except (OSError, *OTHER_SHAPE):
            self.damaged.append(name)
            return None

    def read_lines(self, name: str) -> Iterator[dict[str, Any]]:
        """A file of one JSON object a line, as a stream; a line that a kill cut short is left out."""
        try:
            if (self.folder / name).exists() and not (self.folder / name).is_file():  # a pipe would never end
                raise IsADirectoryError(name)
            with open(self.folder / name, "rb") as file:
                for line in file:
                    try:
                        value = json.loads(line)
                    except (ValueError, RecursionError):
                        continue
                    if isinstance(value, dict):
                        yield value
        except FileNotFoundError:
            return
        except OSError:
            self.damaged.append(name)


def _find_state(folder: Path, facts: dict[str, Any]) -> RunState:
    if facts["state"] == "finished":
        return "finished"
    from fitroom.runs.lock import is_locked

    match is_locked(folder / layout.LOCK_FILE):
        case True:
            return "running"
        case None:
            return "unfinished"
    return "interrupted" if facts["state"] == "interrupted" else "stopped"


def _parse_plan(data: Any) -> Plan | None:
    """Of a job; one that a newer or older fitroom wrote is left out."""
    try:
        return Plan.from_dict(data)
    except OTHER_SHAPE:
        return None


def _parse_history(data: Any) -> dict[str, list[float | None]]:
    return {str(name): [parse_finite(value) for value in values] for name, values in data.items()}


def _parse_times(data: Any) -> dict[str, float]:
    known = {str(name): parse_finite(seconds) for name, seconds in data.items()}
    return {name: seconds for name, seconds in known.items() if seconds is not None}


def parse_time(text: Any) -> float | None:
    """Parse a time of `run.json` or the log into Unix seconds; None where it is no time."""
    try:
        return datetime.fromisoformat(text).timestamp()
    except (TypeError, ValueError):
        return None
