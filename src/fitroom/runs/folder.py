"""A run folder in use: what its run is, how far it came, what happened. `layout` lists the files."""

import contextlib
import json
import time
from pathlib import Path
from typing import Any, Literal

from fitroom.errors import FreshStart, InputError
from fitroom.files.durable import remove_partial, save_model_atomic, write_json
from fitroom.files.json_lines import append_line, finite, read_lines
from fitroom.planning.result import Plan
from fitroom.runs.layout import CHECKPOINTS, HISTORY_FILE, LOCK_FILE, LOG_FILE, MODEL_FILE, PLAN_FILE, RUN_FILE
from fitroom.runs.lock import BorrowedLock, FolderLock, take_lock
from fitroom.runs.place import check_place, not_writable
from fitroom.runs.record import FORMAT, FRESH_START, State, first_difference, read_run

_MAY_CHANGE = ("epochs", "recipe", "budget", "versions", "learning_rate")
"""Fields of run.json that may differ when a run is resumed. All others that describe it must be the same."""

_NOTES = {
    "recipe": "The run is resumed with another recipe, the one given now",
    "versions": "The run is resumed with other versions, the ones installed now",
    "learning_rate": "The run is resumed with its own learning rate, that of its optimizer",
}
"""The note for a user where one of these fields of run.json changed. It says which of the two values applies."""

Progress = Literal["new", "unfinished", "finished"]


class RunFolder:
    """A run folder locked by this process, until `close`.

    `acquire` and `begin` are two steps, since what the folder holds (a seed) may be needed to describe the run; `open`
    is both.
    """

    def __init__(self, path: Path, lock: FolderLock | BorrowedLock, record: dict[str, Any] | None) -> None:
        self.path = path
        self.record = record
        """What run.json holds, or None where the run is new."""
        self.progress: Progress = "new" if record is None else "unfinished"
        self.notes: list[str] = []
        """What a user should know about resuming."""
        self._lock = lock
        if not lock.is_sure:
            self.notes.append(f"The file system of {path} has no locks: make sure that no other process uses it.")

    @classmethod
    def open(cls, path: str | Path, identity: dict[str, Any]) -> "RunFolder":
        """Create a run, or resume the one in the folder. Raises InputError where it holds another run, or is in use."""
        folder = cls.acquire(path)
        try:
            folder.begin(identity)
        except BaseException:
            folder.close()
            raise
        return folder

    @classmethod
    def acquire(cls, path: str | Path) -> "RunFolder":
        """Lock a folder and read its run.json. Raises InputError where it is in use or no run folder."""
        folder = Path(path).expanduser()
        check_place(folder)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            lock = take_lock(folder / LOCK_FILE)
        except OSError as error:
            raise not_writable(folder, error) from error
        try:
            record = read_run(folder / RUN_FILE)
            remove_partial(folder)
        except BaseException as error:
            lock.release()
            if isinstance(error, OSError):
                raise not_writable(folder, error) from error
            raise
        return cls(folder, lock, record)

    @property
    def checkpoints(self) -> Path:
        """The folder of the checkpoints."""
        return self.path / CHECKPOINTS

    @property
    def model_file(self) -> Path:
        """The file of the finished model."""
        return self.path / MODEL_FILE

    @property
    def has_history(self) -> bool:
        """Whether an epoch of the run was finished."""
        return (self.path / HISTORY_FILE).exists()

    def begin(self, identity: dict[str, Any]) -> None:
        """Describe the run: JSON with "epochs" and whatever must be the same when it is resumed.

        A finished run that is asked for more epochs is resumed; asked for the same or fewer, it stays finished.
        """
        before, identity = self.record, json.loads(json.dumps(identity))
        record = {"format": FORMAT, "state": "running", "begun": _now()}
        if before is not None:
            self._check_same(before, identity)
            record |= {name: before[name] for name in ("begun", FRESH_START) if name in before}
            if "learning_rate" in before:  # checkpoints restore it, whatever the model was compiled with
                identity["learning_rate"] = before["learning_rate"]
            if before["state"] == "finished" and identity["epochs"] <= before["epochs"]:
                self.progress = "finished"
                return
        self._start(record | identity)

    def reopen(self) -> None:
        """Set a finished run back to unfinished: something of it is damaged or missing, and is to be made again."""
        assert self.record is not None, "begin comes first"
        self.progress = "unfinished"
        self._start(self.record | {"state": "running"})

    def _start(self, record: dict[str, Any]) -> None:
        self.record = record
        try:
            self._write_run()
        except OSError as error:
            raise not_writable(self.path, error) from error

    def mark(self, state: State) -> bool:
        """Write the state of the run. Returns whether that was possible; a full disk does not stop a training."""
        assert self.record is not None, "begin comes first"
        self.record["state"] = state
        try:
            self._write_run()
        except OSError:
            return False
        return True

    def ask_fresh_start(self, fresh_start: FreshStart) -> bool:
        """Record how the next process that resumes the run is to start. Returns whether that was possible."""
        assert self.record is not None, "begin comes first"
        self.record[FRESH_START] = self.fresh_starts | {fresh_start.during: fresh_start.micro_batch}
        return self.mark("interrupted")

    @property
    def fresh_starts(self) -> dict[str, int]:
        """The largest micro-batch by "training" and "validation", after a process that ran out of memory for good."""
        return dict((self.record or {}).get(FRESH_START, {}))

    def log(self, event: dict[str, Any]) -> None:
        """Append an event to the log. A log that cannot be written does not stop a training."""
        append_line(self.path / LOG_FILE, {"time": _now()} | event)

    def events(self) -> list[dict[str, Any]]:
        """The events of the log; a line that a kill cut short is left out."""
        return read_lines(self.path / LOG_FILE)

    def write_plan(self, plan: Plan) -> None:
        """Write the plan that the run carries out. A full disk does not stop a training: a plan can be made again."""
        with contextlib.suppress(OSError):
            plan.save(self.path / PLAN_FILE)

    def read_plan(self) -> Plan | None:
        """The plan that the run carries out, or None where none can be read."""
        with contextlib.suppress(InputError):
            return Plan.load(self.path / PLAN_FILE)
        return None

    def write_history(self, history: dict[str, list[Any]]) -> None:
        """Write the metrics so far, for people and other tools; NaN and infinity, which JSON lacks, as null.

        The checkpoint has them as they are, so a full disk does not stop a training here either.
        """
        with contextlib.suppress(OSError):
            write_json(self.path / HISTORY_FILE, finite(history))

    def save_model(self, model: Any) -> Path:
        """Write the finished model, whole or not at all."""
        save_model_atomic(model, self.model_file)
        return self.model_file

    def close(self) -> None:
        """Release the lock."""
        self._lock.release()

    def __enter__(self) -> "RunFolder":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _check_same(self, before: dict[str, Any], identity: dict[str, Any]) -> None:
        own = ("format", "state", "begun", "updated", FRESH_START, *_MAY_CHANGE)
        difference = first_difference(_without(before, own), _without(identity, own))
        if difference:
            raise InputError(
                f"The run folder {self.path} holds another run. {difference}.",
                hint="give another `run_dir`, or train what the run began with",
            )
        for name, told in _NOTES.items():
            if found := first_difference(before.get(name), identity.get(name), name):
                self.notes.append(f"{told}. {found}.")

    def _write_run(self) -> None:
        assert self.record is not None
        self.record["updated"] = _now()
        write_json(self.path / RUN_FILE, self.record, checked=True)


def _without(values: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name not in names}


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S%z")
