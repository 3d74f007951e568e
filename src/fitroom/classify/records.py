"""What `fitroom train` writes into a run folder beside what `fit` does."""

import json
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fitroom.backends.choose import INSTALLABLE
from fitroom.classify.choice import Choice
from fitroom.classify.options import check_kept, difference, resume_command
from fitroom.errors import InputError, message_of
from fitroom.files.durable import read_json, save_whole, write_json, written_whole
from fitroom.files.json_lines import finite, read_lines
from fitroom.keras_model.loading.keras_file import damage_of
from fitroom.memory.estimate import Estimate
from fitroom.recipe import PRECISIONS
from fitroom.runs.lock import is_locked
from fitroom.runs.place import JOB_FILE, LOCK_FILE, check_fields, not_written

FORMAT = 1
RESULTS_FILE, MODEL_FILE, ESTIMATE_FILE, SKIPPED_FILE = "results.json", "model.keras", "estimate.json", "skipped.jsonl"
READINGS_FILE = "readings.jsonl"


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
"""What a run that is resumed needs of `job.json`, beside its options."""


def read_job(folder: Path) -> dict[str, Any] | None:
    """What `job.json` says, or None where there is none. Raises InputError where it cannot be used."""
    try:
        job: dict[str, Any] = read_json(folder / JOB_FILE)
        check_fields(job, {"options": dict})
        check_fields({"format": FORMAT} | job, {"format": int})
        if job.get("format", FORMAT) <= FORMAT:
            check_kept(job["options"])
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
    return job


def check_resumable(folder: Path, job: dict[str, Any]) -> None:
    """Refuse a `job.json` that lacks what a run needs to be resumed."""
    try:
        check_fields(job, _FIELDS)
        check_fields(job["precision"], {"policy": str, "why": str})
        if job["precision"]["policy"] not in PRECISIONS:
            raise ValueError(f"the precision must be one of {', '.join(PRECISIONS)}")
        if job["image_size"] < 1:
            raise ValueError("`image_size` must be at least 1")
        Choice.of_job(job)
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        said = f"it has no {error}" if isinstance(error, KeyError) else message_of(error).rstrip(".")
        raise InputError(f"{folder / JOB_FILE} cannot be read: {said}.", hint="give another --run-dir") from None


def is_finished(folder: Path) -> bool:
    """Whether nothing is left to do: results are written last, the history can be read, and the model is whole."""
    return seems_finished(folder) and epochs_done(folder) is not None and damage_of(folder / MODEL_FILE) is None


def seems_finished(folder: Path) -> bool:
    """The same without a look at every byte of the model."""
    try:
        check_fields(read_json(folder / RESULTS_FILE), {"split": str, "metrics": dict})
        return zipfile.is_zipfile(folder / MODEL_FILE)
    except (OSError, ValueError):
        return False


def check_same(folder: Path, job: dict[str, Any], options: dict[str, Any]) -> None:
    """Refuse a folder that holds another training, and say how it differs."""
    found = other_than_kept(job, options)
    if found and is_finished(folder):
        raise InputError(
            f"The run folder {folder} holds another training, which is finished: {found}.",
            hint="a finished run of `fitroom train` is not extended: another --run-dir begins anew, "
            f"with --model {folder / MODEL_FILE} from its weights",
        )
    if found:
        is_moved = options.get("backend") not in (None, job.get("backend"))
        backend = f"KERAS_BACKEND={job['backend']} " if is_moved and "backend" in job else ""
        command = resume_command(folder, job["options"])
        raise InputError(
            f"The run folder {folder} holds another training: {found}.",
            hint=f"`{backend}{command}` goes on with it; another --run-dir begins anew",
        )


def other_than_kept(job: dict[str, Any], options: dict[str, Any]) -> str | None:
    """What makes options another training than the one that was begun; None where they go on with it.

    The backend is the one that it was begun on, whether --backend, KERAS_BACKEND or nobody said which.
    """
    in_force = {"backend": job["backend"]} if "backend" in job else {}
    return difference(job["options"] | in_force, json.loads(json.dumps(options)))


def unfinished_runs(root: Path) -> list[Path]:
    """Run folders of `fitroom train` below a folder that are not done and nobody works in, the latest first."""
    found = [
        path.parent
        for path in root.glob(f"*/{JOB_FILE}")
        if not seems_finished(path.parent) and not is_locked(path.with_name(LOCK_FILE))
    ]
    return sorted(found, key=_begun, reverse=True)


def write_job(folder: Path, job: dict[str, Any]) -> None:
    """Write `job.json`."""
    with _writing(folder, JOB_FILE):
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / JOB_FILE, finite(job))


def write_estimate(folder: Path, estimate: Estimate | None) -> None:
    """Write `estimate.json`, or none where there is no estimate."""
    with _writing(folder, ESTIMATE_FILE):
        if estimate is None:
            (folder / ESTIMATE_FILE).unlink(missing_ok=True)
        else:
            write_json(folder / ESTIMATE_FILE, estimate.to_dict(with_timeline=True))


def write_skipped(folder: Path, skipped: list[Any]) -> None:
    """Write `skipped.jsonl`: a file and the reason a line."""
    with _writing(folder, SKIPPED_FILE), written_whole(folder / SKIPPED_FILE) as file:
        for one in skipped:
            line = json.dumps({"file": str(one.file), "reason": one.reason})
            file.write(line.encode() + b"\n")


def write_results(folder: Path, results: dict[str, Any]) -> None:
    """Write `results.json`."""
    with _writing(folder, RESULTS_FILE):
        write_json(folder / RESULTS_FILE, finite(results), checked=True)


def write_model(folder: Path, model: Any) -> None:
    """Write `model.keras`, whole or not at all."""
    with _writing(folder, MODEL_FILE):
        save_whole(model, folder / MODEL_FILE)


def peak_bytes(folder: Path) -> int | None:
    """The most memory that a reading found in use at once, if anything was counted."""
    found = [line.get("peak_bytes") for line in read_lines(folder / READINGS_FILE)]
    return max((peak for peak in found if isinstance(peak, int)), default=0) or None


def epochs_done(folder: Path) -> int | None:
    """How many epochs the history has."""
    try:
        history = read_json(folder / "history.json")
        return max(map(len, history.values()), default=0)
    except (OSError, ValueError, AttributeError, TypeError):
        return None


def _begun(folder: Path) -> float:
    try:
        return (folder / JOB_FILE).stat().st_mtime
    except OSError:
        return 0.0


@contextmanager
def _writing(folder: Path, name: str) -> Iterator[None]:
    """The system's refusal as an error for people."""
    try:
        yield
    except OSError as error:
        raise not_written(folder / name, error) from error
