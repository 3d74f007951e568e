"""The folder of a loop of trials: its rows, one JSON object a line, and what each trial printed.

trials.jsonl    a row for each trial that ended; the latest row of a trial holds
logs/           what each trial printed
lock            which process works in the folder
"""

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fitroom.errors import FitroomError, InputError
from fitroom.files.json_lines import append_line_durably, read_lines
from fitroom.loops.trials.plain import make_key
from fitroom.loops.trials.table import STATES, State, Trial
from fitroom.runs.lock import FolderLock

ROWS_FILE, LOGS, LOCK_FILE = "trials.jsonl", "logs", "lock"


class TrialsFolder:
    """The folder, locked by this process until `close`."""

    def __init__(self, path: str | Path) -> None:
        """Make the folder, or take the one of an earlier loop. Raises InputError where it is in use, or another's."""
        self.path = Path(path).expanduser()
        self._check_place()
        try:
            (self.path / LOGS).mkdir(parents=True, exist_ok=True)
            self._lock = FolderLock(self.path / LOCK_FILE)
        except InputError as error:
            raise InputError(
                error.message.replace("The run folder", "The folder of trials"),
                hint="wait until that loop ends, stop it, or give another `folder`",
            ) from None
        except OSError as error:
            raise InputError(
                f"The folder {self.path} cannot be written: {error.strerror or error}.",
                hint="give a `folder` where you may write, on a disk with room",
            ) from error

    def read(self) -> dict[str, dict[str, Any]]:
        """The latest row of each trial in the folder, by its key."""
        rows = read_lines(self.path / ROWS_FILE)
        return {str(row["key"]): row for row in rows if _is_row(row)}

    def append(self, trial: Trial, *, function: str) -> None:
        """Write a row, to the disk itself. Raises FitroomError where that is impossible."""
        row = trial.to_dict() | {"key": make_key(trial.settings), "function": function}
        row["log"] = trial.log.relative_to(self.path).as_posix() if trial.log else None
        try:
            append_line_durably(self.path / ROWS_FILE, row)
        except OSError as error:
            raise FitroomError(
                f"{self.path / ROWS_FILE} could not be written: {error.strerror or error}.",
                hint="make room on the disk, and make the same call again: trials in the file are not repeated",
            ) from error

    def log_path(self, number: int, settings: Mapping[str, Any]) -> Path:
        """Where what a trial prints goes."""
        return self.path / LOGS / f"{number:04}-{make_key(settings)[:8]}.log"

    def close(self) -> None:
        """Release the lock."""
        self._lock.release()

    def _check_place(self) -> None:
        try:
            if self.path.exists() and not self.path.is_dir():
                raise InputError(f"`folder` must be a folder. Received: {self.path}, which is a file.")
            if not self.path.is_dir() or (self.path / ROWS_FILE).exists() or (self.path / LOGS).is_dir():
                return
            others = [path.name for path in self.path.iterdir() if not path.name.startswith(".")]
        except OSError as error:
            raise InputError(f"The folder {self.path} cannot be read: {error.strerror or error}.") from error
        if others:
            shown = ", ".join(sorted(others)[:3]) + (", ..." if len(others) > 3 else "")
            raise InputError(
                f"`folder` must be new, empty, or one of earlier trials. Received: {self.path}, with {shown}.",
                hint=f"give a folder within it: {self.path / 'trials'}",
            )


def parse_row(row: Mapping[str, Any], *, number: int, settings: Mapping[str, Any], folder: Path) -> Trial:
    """A row of the file as a value, with the number that the trial has now."""

    def read(name: str, kind: Any) -> Any:
        return row.get(name) if isinstance(row.get(name), kind) else None

    state: State = row["state"]
    log = read("log", str)
    return Trial(
        number=number,
        settings=settings,
        state=state,
        result=row.get("result"),
        error=read("error", str),
        traceback=read("traceback", str),
        seconds=read("seconds", int | float),
        attempts=read("attempts", int) or 1,
        peak_bytes=read("peak_bytes", int),
        host_bytes=read("host_bytes", int),
        device_bytes=read("device_bytes", int),
        log=folder / log if log and not os.path.isabs(log) else None,
        is_earlier=True,
    )


def _is_row(row: Mapping[str, Any]) -> bool:
    with contextlib.suppress(TypeError, ValueError):
        return row.get("state") in STATES and isinstance(row.get("settings"), dict) and isinstance(row["key"], str)
    return False
