"""Which run folder `fitroom train` uses: a new one, a named one, or that of the latest unfinished run."""

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
from fitroom.runs.layout import MODEL_FILE

ROOT = Path("runs")


@dataclass(frozen=True, kw_only=True)
class ChosenRun:
    """A run folder and the options of the training in it."""

    options: dict[str, Any]
    is_finished: bool = False
    note: str | None = None
    """A message about the choice."""

    asked_backend: BackendChoice | None = None
    """The backend of --backend or KERAS_BACKEND; None where neither is set."""

    started_on: str | None = None
    """The backend that a run to be resumed was started on."""

    @property
    def folder(self) -> Path:
        """The run folder."""
        return Path(self.options["run_dir"])


def choose_run(flags: dict[str, Any], given: dict[str, Any], *, resume: bool) -> ChosenRun:
    """Choose the run by all flags, those of them that were typed, and `--resume`."""
    asked = settle_backend(flags["backend"]) if flags["backend"] or os.environ.get("KERAS_BACKEND") else None
    backend = {"backend": asked.name if asked else None}
    run = _choose(flags | backend, given | backend, resume=resume)
    return replace(run, asked_backend=asked)


def _choose(flags: dict[str, Any], given: dict[str, Any], *, resume: bool) -> ChosenRun:
    if resume:
        return _find_resumable(given)
    if flags["folder"] is None:
        raise click.UsageError("FOLDER is missing: give a folder of images, or --resume to resume a run.")
    if flags["run_dir"] is not None:
        folder = Path(flags["run_dir"])
        job = records.read_job(folder)
        if job is None:
            return ChosenRun(options=flags)
        records.check_same_training(folder, job, flags)
        return ChosenRun(options=flags, is_finished=records.is_finished(folder), started_on=job.backend)
    folder = _new_folder(flags["folder"], flags["model"])
    note = None
    unfinished = [found for found in records.unfinished_runs(ROOT) if _is_same(found, flags)]
    if unfinished:
        command = resume_command(unfinished[0], flags)
        note = f"the same training was started in {unfinished[0]} and is not finished: `{command}` resumes it"
    return ChosenRun(options=flags | {"run_dir": str(folder)}, note=note)


def describe_finished(folder: Path, report: Path) -> str:
    """A message about a finished run, with commands for it."""
    model = shlex.quote(str(folder / MODEL_FILE))
    return "\n".join(
        [
            f"The run in {folder} is finished: nothing is left to train.",
            f"report    {report}",
            f"predict   fitroom predict {shlex.quote(str(folder))} image.jpg",
            f"continue  fitroom train ... --model {model}    # a new run that starts from its weights",
        ]
    )


def _find_resumable(given: dict[str, Any]) -> ChosenRun:
    if given.get("run_dir"):
        folder = Path(given["run_dir"])
    else:
        unfinished = records.unfinished_runs(ROOT)
        if not unfinished:
            raise InputError(
                f"There is no unfinished run in {ROOT}/.",
                hint="give its folder: fitroom train --resume --run-dir FOLDER; or start a run: fitroom train flowers/",
            )
        folder = unfinished[0]
    job = records.read_job(folder)
    if job is None:
        raise InputError(
            f"There is no run of `fitroom train` in {folder}.", hint="`fitroom train FOLDER --run-dir ...` starts one"
        )
    _check_code_named(folder, job.options, given)
    options = job.options | {name: value for name, value in given.items() if value is not None}
    options["run_dir"] = str(folder)
    records.check_same_training(folder, job, options)
    return ChosenRun(
        options=options,
        is_finished=records.is_finished(folder),
        note=f"resuming {folder}",
        started_on=job.backend,
    )


def _check_code_named(folder: Path, stored: dict[str, Any], given: dict[str, Any]) -> None:
    """Raise InputError if the folder names code to run and the command line does not: the folder may be from anybody.

    Whether both name the same code is checked with all other options.
    """
    typed = dict(find_code(given))
    asked = find_code(stored)
    if all(flag.split()[0] in [one.split()[0] for one in typed] for flag, _ in asked):
        return
    raise InputError(
        f"The run folder {folder} wants to run code: {' and '.join(words for _, words in asked)}. "
        "Code is run only if the command line names it.",
        hint=f"if you trust it: {resume_command(folder, stored)}",
    )


def _new_folder(images: str, model: str) -> Path:
    """runs/flowers-xception, or the first of runs/flowers-xception-2, -3 and so on that is free."""
    base = f"{_slug(Path(images).resolve().stem)}-{_slug(_short(model))}"
    number = 1
    while (folder := ROOT / (base if number == 1 else f"{base}-{number}")).exists():
        number += 1
    return folder


def _short(model: str) -> str:
    """A short name of a model: mine of mine.py:make_model, a of models/a.keras, xception as it is."""
    return Path(model.partition(":")[0]).stem


def _slug(text: str) -> str:
    return re.sub(r"[^\w.]+", "-", text).strip("-.") or "run"


def _is_same(folder: Path, flags: dict[str, Any]) -> bool:
    try:
        job = records.read_job(folder)
    except InputError:  # a damaged folder of another run
        return False
    return job is not None and records.describe_difference_from(job, flags) is None
