"""Which run folder `fitroom train` works in: a new one, the one that is named, or the latest unfinished one."""

import os
import re
import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from fitroom.backends.choose import BackendChoice, settle_backend
from fitroom.classify import records
from fitroom.classify.options import find_code, resume_command
from fitroom.errors import InputError

ROOT = Path("runs")


@dataclass(frozen=True, kw_only=True)
class ChosenRun:
    """A run folder and the options of the training in it."""

    options: dict[str, Any]
    is_finished: bool = False
    note: str | None = None
    """What the user should know of the choice."""

    asked_backend: BackendChoice | None = None
    """By --backend or KERAS_BACKEND; None where neither says anything."""

    begun_on: str | None = None
    """The backend that a run which goes on was begun on."""

    @property
    def folder(self) -> Path:
        """Where the run is."""
        return Path(self.options["run_dir"])


def choose_run(flags: dict[str, Any], given: dict[str, Any], *, resume: bool) -> ChosenRun:
    """By all flags, those of them that were typed, and whether to go on with what there is."""
    asked = settle_backend(flags["backend"]) if flags["backend"] or os.environ.get("KERAS_BACKEND") else None
    backend = {"backend": asked.name if asked else None}
    run = _choose(flags | backend, given | backend, resume=resume)
    return replace(run, asked_backend=asked)


def _choose(flags: dict[str, Any], given: dict[str, Any], *, resume: bool) -> ChosenRun:
    if resume:
        return _resumed(given)
    if flags["folder"] is None:
        raise click.UsageError("Which FOLDER of pictures? `fitroom train flowers/`, or --resume to go on with a run.")
    if flags["run_dir"] is not None:
        folder = Path(flags["run_dir"])
        job = records.read_job(folder)
        if job is None:
            return ChosenRun(options=flags)
        records.check_same_training(folder, job, flags)
        return ChosenRun(options=flags, is_finished=records.is_finished(folder), begun_on=job.get("backend"))
    folder = _new_folder(flags["folder"], flags["model"])
    note = None
    unfinished = [found for found in records.unfinished_runs(ROOT) if _is_same(found, flags)]
    if unfinished:
        command = resume_command(unfinished[0], flags)
        note = f"the same training was begun in {unfinished[0]} and is not done: `{command}` goes on with it"
    return ChosenRun(options=flags | {"run_dir": str(folder)}, note=note)


def finished_words(folder: Path, report: Path) -> str:
    """What to do with a run that is done."""
    model = shlex.quote(str(folder / records.MODEL_FILE))
    return "\n".join(
        [
            f"The run in {folder} is finished: there is nothing left to train.",
            f"report    {report}",
            f"predict   fitroom predict {shlex.quote(str(folder))} picture.jpg",
            f"go on     fitroom train ... --model {model}    # a new run that begins with its weights",
        ]
    )


def _resumed(given: dict[str, Any]) -> ChosenRun:
    if given.get("run_dir"):
        folder = Path(given["run_dir"])
    else:
        unfinished = records.unfinished_runs(ROOT)
        if not unfinished:
            raise InputError(
                f"There is no unfinished run in {ROOT}/.",
                hint="name the folder: fitroom train --resume --run-dir FOLDER; or begin one: fitroom train flowers/",
            )
        folder = unfinished[0]
    job = records.read_job(folder)
    if job is None:
        raise InputError(
            f"There is no run of `fitroom train` in {folder}.", hint="`fitroom train FOLDER --run-dir ...` begins one"
        )
    _check_named(folder, job["options"], given)
    options = job["options"] | {name: value for name, value in given.items() if value is not None}
    options["run_dir"] = str(folder)
    records.check_same_training(folder, job, options)
    return ChosenRun(
        options=options,
        is_finished=records.is_finished(folder),
        note=f"going on with {folder}",
        begun_on=job.get("backend"),
    )


def _check_named(folder: Path, kept: dict[str, Any], given: dict[str, Any]) -> None:
    """Refuse to run code that the folder asks for and the user has not named: the folder may be anybody's.

    What was typed is compared with what is recorded where all the other options are.
    """
    typed = dict(find_code(given))
    asked = find_code(kept)
    if all(flag.split()[0] in [one.split()[0] for one in typed] for flag, _ in asked):
        return
    raise InputError(
        f"The run folder {folder} asks to run code: {' and '.join(words for _, words in asked)}. "
        "What is found in a folder is run only where the command line names it.",
        hint=f"if you trust it: {resume_command(folder, kept)}",
    )


def _new_folder(pictures: str, model: str) -> Path:
    """runs/flowers-xception, or the first of runs/flowers-xception-2, -3 and so on that is free."""
    base = f"{_slug(Path(pictures).resolve().stem)}-{_slug(_short(model))}"
    number = 1
    while (folder := ROOT / (base if number == 1 else f"{base}-{number}")).exists():
        number += 1
    return folder


def _short(model: str) -> str:
    """mine.py:make_model as mine, models/a.keras as a, xception as it is."""
    return Path(model.partition(":")[0]).stem


def _slug(text: str) -> str:
    return re.sub(r"[^\w.]+", "-", text).strip("-.") or "run"


def _is_same(folder: Path, flags: dict[str, Any]) -> bool:
    try:
        job = records.read_job(folder)
    except InputError:  # another run's trouble
        return False
    return job is not None and records.describe_difference_from(job, flags) is None
