"""What `fitroom train` writes into a run folder beside what `fit` does."""

import json
from pathlib import Path
from typing import Any

from fitroom.classify.options import difference
from fitroom.errors import InputError
from fitroom.estimating.result import Estimate
from fitroom.train.run.durable import write_json, written_whole
from fitroom.train.run.json_lines import finite, read_lines
from fitroom.train.run.lock import is_locked
from fitroom.train.run.place import JOB_FILE, LOCK_FILE

FORMAT = 1
RESULTS_FILE, MODEL_FILE, ESTIMATE_FILE, SKIPPED_FILE = "results.json", "model.keras", "estimate.json", "skipped.jsonl"
READINGS_FILE = "readings.jsonl"


def read_job(folder: Path) -> dict[str, Any] | None:
    """What `job.json` says, or None where there is none."""
    try:
        job: dict[str, Any] = json.loads((folder / JOB_FILE).read_text())
        if not isinstance(job, dict) or "options" not in job:
            raise ValueError("it is not what fitroom writes")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        raise InputError(f"{folder / JOB_FILE} cannot be read: {error}.", hint="give another --run-dir") from None
    if job.get("format", FORMAT) > FORMAT:
        raise InputError(
            f"{folder / JOB_FILE} was written by a newer fitroom (format {job['format']}, known up to {FORMAT}).",
            hint="pip install --upgrade fitroom",
        )
    return job


def is_finished(folder: Path) -> bool:
    """Whether nothing is left to do: results are written last."""
    return (folder / RESULTS_FILE).is_file() and (folder / MODEL_FILE).is_file()


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
        raise InputError(
            f"The run folder {folder} holds another training: {found}.",
            hint=f"`{backend}fitroom train --resume --run-dir {folder}` goes on with it; another --run-dir begins anew",
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
        if not is_finished(path.parent) and not is_locked(path.with_name(LOCK_FILE))
    ]
    return sorted(found, key=lambda folder: (folder / JOB_FILE).stat().st_mtime, reverse=True)


def write_job(folder: Path, job: dict[str, Any]) -> None:
    """Write `job.json`."""
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / JOB_FILE, finite(job))


def write_estimate(folder: Path, estimate: Estimate | None) -> None:
    """Write `estimate.json`, or none where there is no estimate."""
    if estimate is None:
        (folder / ESTIMATE_FILE).unlink(missing_ok=True)
    else:
        write_json(folder / ESTIMATE_FILE, estimate.to_dict(with_timeline=True))


def write_skipped(folder: Path, skipped: list[Any]) -> None:
    """Write `skipped.jsonl`: a file and the reason a line."""
    with written_whole(folder / SKIPPED_FILE) as file:
        for one in skipped:
            line = json.dumps({"file": str(one.file), "reason": one.reason})
            file.write(line.encode() + b"\n")


def write_results(folder: Path, results: dict[str, Any]) -> None:
    """Write `results.json`."""
    write_json(folder / RESULTS_FILE, finite(results))


def peak_bytes(folder: Path) -> int | None:
    """The most memory that a reading found in use at once, if anything was counted."""
    found = [line.get("peak_bytes") or 0 for line in read_lines(folder / READINGS_FILE)]
    return max(found, default=0) or None


def epochs_done(folder: Path) -> int | None:
    """How many epochs the history has."""
    try:
        history = json.loads((folder / "history.json").read_text())
        return max(map(len, history.values()), default=0)
    except (OSError, ValueError, AttributeError, TypeError):
        return None
