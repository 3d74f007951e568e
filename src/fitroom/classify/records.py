"""The files that `fitroom train` writes into a run folder, in addition to those of `fit`."""

import json
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fitroom.backends.choose import INSTALLABLE
from fitroom.classify.choice import Choice
from fitroom.classify.options import check_stored_options, difference, resume_command
from fitroom.errors import InputError, message_of
from fitroom.files.durable import open_atomic, read_json, save_model_atomic, write_json
from fitroom.files.field_types import check_fields
from fitroom.files.json_lines import finite, read_lines
from fitroom.keras_model.loading.keras_file import damage_of
from fitroom.memory.estimate import Estimate
from fitroom.recipe import PRECISIONS
from fitroom.runs.job import Job
from fitroom.runs.layout import (
    ESTIMATE_FILE,
    HISTORY_FILE,
    JOB_FILE,
    LOCK_FILE,
    MODEL_FILE,
    READINGS_FILE,
    RESULTS_FILE,
    SKIPPED_FILE,
)
from fitroom.runs.lock import is_locked
from fitroom.runs.place import not_written

FORMAT = 1


_FIELDS: dict[str, Any] = {
    "command": list,
    "begun": str,
    "backend": str,
    "precision": dict,
    "image_size": int,
    "optimizer": str,
    "frozen_layers": (int, None),
    "recipe": dict,
    "recipe_why": str,
    "plan": (dict, None),
}
"""The fields of `job.json` that are needed to resume a run, besides its options."""


def read_job(folder: Path) -> Job | None:
    """What `job.json` holds, or None where there is none. Raises InputError where it cannot be used."""
    try:
        job: dict[str, Any] = read_json(folder / JOB_FILE)
        check_fields(job, {"options": dict})
        check_fields({"format": FORMAT} | job, {"format": int})
        if job.get("format", FORMAT) <= FORMAT:
            check_stored_options(job["options"])
            kinds = _FIELDS | {"classes": list}
            check_fields(job, {name: kind for name, kind in kinds.items() if name in job})
            if not all(isinstance(name, str) for name in job.get("classes", ())):
                raise ValueError("`classes` must be texts")
            if job.get("backend", "jax") not in INSTALLABLE:
                raise ValueError(f"`backend` must be one of {', '.join(INSTALLABLE)}; it is {job['backend'][:80]!r}")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        said = error.strerror if isinstance(error, OSError) else message_of(error).rstrip(".")
        raise InputError(f"{folder / JOB_FILE} cannot be read: {said}.", hint="give another --run-dir") from None
    if job.get("format", FORMAT) > FORMAT:
        raise InputError(
            f"{folder / JOB_FILE} was written by a newer fitroom (format {job['format']}, known up to {FORMAT}).",
            hint="pip install --upgrade fitroom",
        )
    return Job.from_dict(job)


def check_resumable(folder: Path, job: Job) -> None:
    """Raise InputError for a `job.json` that lacks what is needed to resume the run."""
    try:
        check_fields(job.values, _FIELDS)
        check_fields(job.values["precision"], {"policy": str, "why": str})
        if job.precision.policy not in PRECISIONS:
            raise ValueError(f"the precision must be one of {', '.join(PRECISIONS)}")
        if (job.image_size or 0) < 1:
            raise ValueError("`image_size` must be at least 1")
        Choice.from_job(job)
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        said = f"it has no {error}" if isinstance(error, KeyError) else message_of(error).rstrip(".")
        raise InputError(f"{folder / JOB_FILE} cannot be read: {said}.", hint="give another --run-dir") from None


def is_finished(folder: Path) -> bool:
    """Whether a run is complete: results, which are written last, and history can be read, and the model is whole."""
    return seems_finished(folder) and count_epochs(folder) is not None and damage_of(folder / MODEL_FILE) is None


def seems_finished(folder: Path) -> bool:
    """Whether a run looks complete, without reading every byte of the model as `is_finished` does."""
    try:
        check_fields(read_json(folder / RESULTS_FILE), {"split": str, "metrics": dict})
        return zipfile.is_zipfile(folder / MODEL_FILE)
    except (OSError, ValueError):
        return False


def check_same_training(folder: Path, job: Job, options: dict[str, Any]) -> None:
    """Raise InputError for a folder that holds another training, saying how it differs."""
    found = describe_difference_from(job, options)
    if found and is_finished(folder):
        raise InputError(
            f"The run folder {folder} holds another training, which is finished: {found}.",
            hint="a finished run is not extended: another --run-dir starts a new one, "
            f"with --model {folder / MODEL_FILE} from its weights",
        )
    if found:
        is_other_backend = job.backend is not None and options.get("backend") not in (None, job.backend)
        backend = f"KERAS_BACKEND={job.backend} " if is_other_backend else ""
        command = resume_command(folder, job.options)
        raise InputError(
            f"The run folder {folder} holds another training: {found}.",
            hint=f"`{backend}{command}` resumes it; another --run-dir starts a new run",
        )


def describe_difference_from(job: Job, options: dict[str, Any]) -> str | None:
    """How options differ from those of the run in a folder; None where they can resume it.

    Its backend is the one that it was started on, whether by --backend, by KERAS_BACKEND or by default.
    """
    in_force = {"backend": job.backend} if job.backend is not None else {}
    return difference(job.options | in_force, json.loads(json.dumps(options)))


def unfinished_runs(root: Path) -> list[Path]:
    """Runs of `fitroom train` in a folder that are not finished and not being trained, the latest first."""
    found = [
        path.parent
        for path in root.glob(f"*/{JOB_FILE}")
        if not seems_finished(path.parent) and not is_locked(path.with_name(LOCK_FILE))
    ]
    return sorted(found, key=_start_time, reverse=True)


def write_job(folder: Path, job: Job) -> None:
    """Write `job.json`."""
    with _report_errors(folder, JOB_FILE):
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / JOB_FILE, finite(job.values))


def write_estimate(folder: Path, estimate: Estimate | None) -> None:
    """Write `estimate.json`, or remove it where there is no estimate."""
    with _report_errors(folder, ESTIMATE_FILE):
        if estimate is None:
            (folder / ESTIMATE_FILE).unlink(missing_ok=True)
        else:
            write_json(folder / ESTIMATE_FILE, estimate.to_dict(with_timeline=True))


def write_skipped(folder: Path, skipped: list[Any]) -> None:
    """Write `skipped.jsonl`: one line per file, with the reason."""
    with _report_errors(folder, SKIPPED_FILE), open_atomic(folder / SKIPPED_FILE) as file:
        for one in skipped:
            line = json.dumps({"file": str(one.file), "reason": one.reason})
            file.write(line.encode() + b"\n")


def write_results(folder: Path, results: dict[str, Any]) -> None:
    """Write `results.json`."""
    with _report_errors(folder, RESULTS_FILE):
        write_json(folder / RESULTS_FILE, finite(results), checked=True)


def write_model(folder: Path, model: Any) -> None:
    """Write `model.keras`, whole or not at all."""
    with _report_errors(folder, MODEL_FILE):
        save_model_atomic(model, folder / MODEL_FILE)


def read_peak_bytes(folder: Path) -> int | None:
    """The highest peak of memory among the readings, or None if there is none."""
    found = [line.get("peak_bytes") for line in read_lines(folder / READINGS_FILE)]
    return max((peak for peak in found if isinstance(peak, int)), default=0) or None


def count_epochs(folder: Path) -> int | None:
    """How many epochs the history has, or None where it cannot be read."""
    try:
        history = read_json(folder / HISTORY_FILE)
        return max(map(len, history.values()), default=0)
    except (OSError, ValueError, AttributeError, TypeError):
        return None


def _start_time(folder: Path) -> float:
    try:
        return (folder / JOB_FILE).stat().st_mtime
    except OSError:
        return 0.0


@contextmanager
def _report_errors(folder: Path, name: str) -> Iterator[None]:
    """Raise an OSError of the block as an error for people."""
    try:
        yield
    except OSError as error:
        raise not_written(folder / name, error) from error
