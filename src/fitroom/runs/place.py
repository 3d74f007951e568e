"""Whether a path can be a run folder, and what is written there about its run."""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from fitroom.errors import FitroomError, InputError
from fitroom.files.durable import read_json

FORMAT = 1
RUN_FILE, LOCK_FILE, JOB_FILE = "run.json", "lock", "job.json"
"""What the run is; which process works in it; and what `fitroom train` was asked for, which comes first there."""

STATES = ("running", "interrupted", "finished")
_FIELDS = {"state": str, "epochs": int}
_WORDS = {
    int: "a whole number",
    float: "a number",
    str: "a text",
    bool: "true or false",
    dict: "an object",
    list: "a list",
    None: "null",
}
_LARGEST_NUMBER = 2**63


def check_place(folder: Path) -> None:
    """Refuse what is no run folder before anything is written there."""
    try:
        if folder.exists() and not folder.is_dir():
            raise InputError(
                f"`run_dir` must be a folder. Received: {folder}, which is a file.", hint="give a new folder"
            )
        if not folder.is_dir() or (folder / RUN_FILE).exists() or (folder / JOB_FILE).exists():
            return
        names = sorted(path.name for path in folder.iterdir())
    except OSError as error:
        raise not_writable(folder, error) from error
    others = [name for name in names if name != LOCK_FILE and not name.startswith(".")]
    if others:
        shown = ", ".join(others[:3]) + (", ..." if len(others) > 3 else "")
        raise InputError(
            f"`run_dir` must be a new or empty folder, or one that holds a run. Received: {folder}, with {shown}.",
            hint=f"give a folder within it: {folder / 'run'}",
        )


def check_writable(folder: Path) -> None:
    """Refuse a place that cannot be written before the work that would go there. It is left as it was.

    Only trying tells: of /proc, or of a disk that is mounted to be read, the permissions say nothing.
    """
    made: list[Path] = []
    try:
        made += [path for path in (folder, *folder.parents) if not path.exists()]
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise not_writable(folder, error) from error
    finally:
        for path in made:
            with suppress(OSError):  # never made, or already another's
                path.rmdir()


def read_run(path: Path) -> dict[str, Any] | None:
    """What run.json says, or None where there is none. Raises InputError where it cannot be used."""
    try:
        kept = read_json(path)
        check_fields(kept, {"format": int})
        if kept["format"] <= FORMAT:
            check_fields(kept, _FIELDS)
            if kept["state"] not in STATES:
                raise ValueError(f"`state` must be one of {', '.join(STATES)}; it is {kept['state']!r}")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        said = error.strerror if isinstance(error, OSError) else error
        raise InputError(
            f"{path} cannot be read: {said}.", hint="bring it back from a backup, or give another `run_dir`"
        ) from None
    if kept["format"] > FORMAT:
        raise InputError(
            f"{path} was written by a newer fitroom (format {kept['format']}, known up to {FORMAT}).",
            hint="pip install --upgrade fitroom",
        )
    found: dict[str, Any] = kept
    return found


def check_fields(kept: Any, fields: Mapping[str, Any]) -> None:
    """Raise ValueError where a value read from JSON is no dict with these fields of these types.

    A type is that of the field, a tuple of several, or `None` among them for a field that may be null.

    >>> check_fields({"epochs": "ten"}, {"epochs": int})
    Traceback (most recent call last):
    ValueError: `epochs` must be a whole number; it is 'ten'
    """
    if not isinstance(kept, dict):
        raise ValueError("it is not what fitroom writes")
    for name, kinds in fields.items():
        allowed = kinds if isinstance(kinds, tuple) else (kinds,)
        if name not in kept:
            raise ValueError(f"it is not what fitroom writes: it has no `{name}`")
        value = kept[name]
        if not any(_is_of(value, kind) for kind in allowed):
            words = " or ".join(_WORDS[kind] for kind in allowed)
            raise ValueError(f"`{name}` must be {words}; it is {repr(value)[:80]}")


def _is_of(value: Any, kind: Any) -> bool:
    if kind is None:
        return value is None
    if isinstance(value, bool):  # which Python takes for a number
        return kind is bool
    if kind is float:
        return isinstance(value, int | float) and abs(value) < _LARGEST_NUMBER
    if kind is int:
        return isinstance(value, int) and abs(value) < _LARGEST_NUMBER
    return isinstance(value, kind)


def not_writable(folder: Path, error: OSError) -> InputError:
    """The system's refusal as an error for people."""
    return InputError(
        f"The run folder {folder} cannot be written: {error.strerror or error}.",
        hint="give a `run_dir` where you may write, on a disk with room",
    )


def not_written(path: Path, error: OSError) -> FitroomError:
    """A file of a run that could not be written: what was trained is in the checkpoints."""
    return FitroomError(
        f"{path} could not be written: {error.strerror or error}.",
        hint="make room on the disk, or look whether it is well, and run the same command again: what is in the "
        "checkpoints is not trained again",
    )
