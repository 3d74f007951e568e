"""Files that are there whole or not at all, and stay through a power cut; and read with no trust in what they hold."""

import contextlib
import errno
import hashlib
import json
import os
import stat
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from fitroom.units import format_bytes

PARTIAL = ".partial"
"""How the name of a half-written file ends. It is hidden, and nobody reads it."""

NO_LINKS = getattr(os, "O_NOFOLLOW", 0)
"""For files that are written in place: a link in a folder from elsewhere must not lead to a file of the user's."""

LARGEST_JSON_BYTES = 256 * 1024**2
_DEEPEST_JSON = 100
_CHECKSUM = "sha256"


@contextlib.contextmanager
def open_atomic(path: Path) -> Iterator[BinaryIO]:
    """A file to write to. It takes its name once all of it is on the disk; after an error nothing of it is left."""
    beside = path.with_name(f".{path.name}{PARTIAL}")
    try:
        beside.unlink(missing_ok=True)  # what a kill left, or a link to elsewhere
        with open(beside, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except BaseException:
        _remove(beside)
        raise
    sync_folder(path.parent)


def write_json(path: Path, value: Any, *, checked: bool = False) -> None:
    """Write a value as JSON that people can read; where `checked`, with a checksum that `read_json` compares."""
    value = value | {_CHECKSUM: _checksum(value)} if checked else value
    text = json.dumps(value, indent=1, allow_nan=False)
    with open_atomic(path) as file:
        file.write(text.encode() + b"\n")


def save_model_atomic(model: Any, path: Path) -> None:
    """Save a Keras model as a `.keras` file."""
    beside = path.with_name(f".{path.stem}{PARTIAL}.keras")  # Keras goes by the end of the name
    try:
        beside.unlink(missing_ok=True)
        _save(model, beside)
        with open(beside, "rb") as file:
            os.fsync(file.fileno())
        os.replace(beside, path)
    except BaseException:
        _remove(beside)
        raise
    sync_folder(path.parent)


def load_weights(model: Any, path: Path) -> None:
    """Give a model the weights of a `.keras` file, and not its optimizer's, of which Keras would warn."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Skipping variable loading for optimizer")
        model.load_weights(path)


def read_json(path: Path, *, largest_bytes: int = LARGEST_JSON_BYTES) -> Any:
    """What a file of JSON says. Raises OSError where it cannot be read, ValueError where it holds something else.

    The file may be of anybody: a pipe is not waited for, and nesting without end is an error like any other.
    """
    try:
        value = json.loads(read_regular_file(path, largest_bytes=largest_bytes))
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    level = [value]
    for _ in range(_DEEPEST_JSON):
        level = [inner for one in level for inner in _within(one) if isinstance(inner, dict | list)]
        if not level:
            return _compared(value)
    raise ValueError("it is nested too deeply")  # for whoever walks through it


def read_regular_file(path: Path, *, largest_bytes: int) -> bytes:
    """A file's content; ValueError for what is no file (a pipe, a device, a folder), or larger than it should be."""
    if not stat.S_ISREG(os.stat(path).st_mode):  # before it is opened, which for some devices is an action
        raise ValueError("it is not a file")
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    with open(handle, "rb") as file:
        known = os.fstat(handle)
        if not stat.S_ISREG(known.st_mode):
            raise ValueError("it is not a file")
        if known.st_size > largest_bytes:
            raise ValueError(f"it is too large: {format_bytes(known.st_size)}")
        return file.read()


def sync_folder(folder: Path) -> None:
    """Bring the names in a folder to the disk, where the file system can do that for folders."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def remove_partial(folder: Path) -> None:
    """Clear what a killed process left half written. Only for the one process that may write there."""
    for path in folder.glob(f".*{PARTIAL}*"):
        path.unlink(missing_ok=True)


def _save(model: Any, path: Path) -> None:
    """HDF5 tells of a full disk in errors of other classes, by the system's number or its words alone."""
    try:
        model.save(path)
    except Exception as error:
        number = getattr(error, "errno", None)
        for known in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
            if number is None and (f"errno = {known}," in str(error) or os.strerror(known) in str(error)):
                raise OSError(known, os.strerror(known), str(path)) from error
        raise


def _compared(value: Any) -> Any:
    """The value without the checksum that it may have."""
    if not isinstance(value, dict) or _CHECKSUM not in value:
        return value
    checksum = value.pop(_CHECKSUM)
    if checksum != _checksum(value):
        raise ValueError("it is damaged: its checksum does not match")
    return value


def _checksum(value: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def _within(value: Any) -> Any:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


def _remove(path: Path) -> None:
    """After an error, which is the one to be told: not that this failed too."""
    with contextlib.suppress(OSError):
        path.unlink(missing_ok=True)
