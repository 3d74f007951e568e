"""A run folder in use: what its run is, how far it came, what happened. `layout` lists the files."""

import contextlib
import json
import time
from pathlib import Path
from typing import Any, Literal

from fitroom.errors import FreshStart, InputError
from fitroom.files.durable import remove_partial, save_whole, write_json
from fitroom.files.json_lines import append_line, finite, read_lines
from fitroom.planning.result import Plan
from fitroom.runs.layout import CHECKPOINTS, HISTORY_FILE, LOCK_FILE, LOG_FILE, MODEL_FILE, PLAN_FILE, RUN_FILE
from fitroom.runs.lock import BorrowedLock, FolderLock, take_lock
from fitroom.runs.place import check_place, not_writable
from fitroom.runs.record import FORMAT, FRESH_START, State, first_difference, read_run

_MAY_CHANGE = ("epochs", "recipe", "budget", "versions", "learning_rate")
"""What may be another when a run goes on. All else that says what the run is must be the same."""

_TOLD_OF = {
    "recipe": "The run goes on with another recipe, that of now",
    "versions": "The run goes on with other versions, those of now",
    "learning_rate": "The run goes on with its own learning rate, that of its optimizer",
}
"""What a user is told of where it changed, and which of the two applies."""

Progress = Literal["new", "unfinished", "finished"]


class RunFolder:
    """A run folder in use by this process, until `close`.

    `opened` and `begin` are two steps, since what was kept (a seed) may be needed to say what the run is; `open` is
    both.
    """

    def __init__(self, path: Path, lock: FolderLock | BorrowedLock, kept: dict[str, Any] | None) -> None:
        self.path = path
        self.kept = kept
        """What run.json says, or None where the run is new."""
        self.progress: Progress = "new" if kept is None else "unfinished"
        self.notes: list[str] = []
        """What a user should know about going on."""
        self._lock = lock
        if not lock.is_sure:
            self.notes.append(f"The file system of {path} has no locks: make sure that no other process uses it.")

    @classmethod
    def open(cls, path: str | Path, identity: dict[str, Any]) -> "RunFolder":
        """Create a run, or go on with the one that is there. Raises InputError where it is another, or in use."""
        folder = cls.opened(path)
        try:
            folder.begin(identity)
        except BaseException:
            folder.close()
            raise
        return folder

    @classmethod
    def opened(cls, path: str | Path) -> "RunFolder":
        """Take hold of a folder and read what it says."""
        folder = Path(path).expanduser()
        check_place(folder)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            lock = take_lock(folder / LOCK_FILE)
        except OSError as error:
            raise not_writable(folder, error) from error
        try:
            kept = read_run(folder / RUN_FILE)
            remove_partial(folder)
        except BaseException as error:
            lock.release()
            if isinstance(error, OSError):
                raise not_writable(folder, error) from error
            raise
        return cls(folder, lock, kept)

    @property
    def checkpoints(self) -> Path:
        """Where checkpoints are."""
        return self.path / CHECKPOINTS

    @property
    def model_file(self) -> Path:
        """Where the finished model is."""
        return self.path / MODEL_FILE

    @property
    def has_history(self) -> bool:
        """Whether an epoch of the run was done."""
        return (self.path / HISTORY_FILE).exists()

    def begin(self, identity: dict[str, Any]) -> None:
        """Say what the run is: JSON with "epochs" and whatever must be the same when it goes on.

        A finished run that is asked for more epochs goes on; asked for the same or fewer, it stays finished.
        """
        before, identity = self.kept, json.loads(json.dumps(identity))
        kept = {"format": FORMAT, "state": "running", "begun": _now()}
        if before is not None:
            self._check_same(before, identity)
            kept |= {name: before[name] for name in ("begun", FRESH_START) if name in before}
            if "learning_rate" in before:  # checkpoints bring it back, whatever the model was compiled with
                identity["learning_rate"] = before["learning_rate"]
            if before["state"] == "finished" and identity["epochs"] <= before["epochs"]:
                self.progress = "finished"
                return
        self._write_begun(kept | identity)

    def reopen(self) -> None:
        """A run that says it is finished is not: something of it is damaged or missing, and is to be made again."""
        assert self.kept is not None, "begin comes first"
        self.progress = "unfinished"
        self._write_begun(self.kept | {"state": "running"})

    def _write_begun(self, kept: dict[str, Any]) -> None:
        self.kept = kept
        try:
            self._write_run()
        except OSError as error:
            raise not_writable(self.path, error) from error

    def mark(self, state: State) -> bool:
        """Say how the run stands. Whether that could be written; a full disk is no reason to stop."""
        assert self.kept is not None, "begin comes first"
        self.kept["state"] = state
        try:
            self._write_run()
        except OSError:
            return False
        return True

    def ask_fresh_start(self, fresh_start: FreshStart) -> bool:
        """Have the next process that goes on with the run begin so. Whether that could be written."""
        assert self.kept is not None, "begin comes first"
        self.kept[FRESH_START] = self.fresh_starts | {fresh_start.during: fresh_start.micro_batch}
        return self.mark("interrupted")

    @property
    def fresh_starts(self) -> dict[str, int]:
        """The most samples at once by "training" and "validation", if a process ran out of memory for good."""
        return dict((self.kept or {}).get(FRESH_START, {}))

    def log(self, event: dict[str, Any]) -> None:
        """Add an event to the log. A log that cannot be written is no reason to stop."""
        append_line(self.path / LOG_FILE, {"time": _now()} | event)

    def events(self) -> list[dict[str, Any]]:
        """What the log holds; a line that a kill cut short is left out."""
        return read_lines(self.path / LOG_FILE)

    def write_plan(self, plan: Plan) -> None:
        """Keep the plan that the run carries out. A full disk is no reason to stop: it can be made again."""
        with contextlib.suppress(OSError):
            plan.save(self.path / PLAN_FILE)

    def read_plan(self) -> Plan | None:
        """The plan that the run carries out, or None where none can be read."""
        with contextlib.suppress(InputError):
            return Plan.load(self.path / PLAN_FILE)
        return None

    def write_history(self, history: dict[str, list[Any]]) -> None:
        """Write the metrics so far, for people and other tools; NaN and infinity, which JSON lacks, as null.

        The checkpoint has them as they are, so that a full disk is no reason to stop here either.
        """
        with contextlib.suppress(OSError):
            write_json(self.path / HISTORY_FILE, finite(history))

    def save_model(self, model: Any) -> Path:
        """Write the finished model, whole or not at all."""
        save_whole(model, self.model_file)
        return self.model_file

    def close(self) -> None:
        """Let others use the folder."""
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
        for name, told in _TOLD_OF.items():
            if found := first_difference(before.get(name), identity.get(name), name):
                self.notes.append(f"{told}. {found}.")

    def _write_run(self) -> None:
        assert self.kept is not None
        self.kept["updated"] = _now()
        write_json(self.path / RUN_FILE, self.kept, checked=True)


def _without(values: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name not in names}


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S%z")
