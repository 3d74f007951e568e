"""Atomic writes that survive a power cut, and reads of files that may be damaged, hostile or no files at all."""

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
"""The suffix of a half-written file. It is hidden, and never read."""

NO_LINKS = getattr(os, "O_NOFOLLOW", 0)
"""A flag for files that are written in place: a link in a folder from elsewhere must not lead to a file of the user."""

LARGEST_JSON_BYTES = 256 * 1024**2
_DEEPEST_JSON = 100
_CHECKSUM = "sha256"


@contextlib.contextmanager
def open_atomic(path: Path) -> Iterator[BinaryIO]:
    """Open a file to write, which gets its name once all of it is on the disk. After an error nothing of it is left."""
    beside = path.with_name(f".{path.name}{PARTIAL}")
    try:
        beside.unlink(missing_ok=True)  # left by a kill, or a link to elsewhere
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
    """Save a Keras model as a `.keras` file, atomically."""
    beside = path.with_name(f".{path.stem}{PARTIAL}.keras")  # Keras decides by the suffix
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
    """Load the weights of a `.keras` file into a model, without the warning of Keras that its optimizer is left out."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Skipping variable loading for optimizer")
        model.load_weights(path)


def read_json(path: Path, *, largest_bytes: int = LARGEST_JSON_BYTES) -> Any:
    """Read a file of JSON. Raises OSError where it cannot be read, ValueError where it holds something else.

    The file may come from anywhere: a pipe is not waited for, and endless nesting is an error like any other.
    """
    try:
        value = json.loads(read_regular_file(path, largest_bytes=largest_bytes))
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    level = [value]
    for _ in range(_DEEPEST_JSON):
        level = [inner for one in level for inner in _within(one) if isinstance(inner, dict | list)]
        if not level:
            return _verify(value)
    raise ValueError("it is nested too deeply")  # for code that recurses into it


def read_regular_file(path: Path, *, largest_bytes: int) -> bytes:
    """Read a file. Raises ValueError for what is no regular file (a pipe, a device, a folder), or is too large."""
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
    """Write the names in a folder through to the disk, where the file system can do that for folders."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def remove_partial(folder: Path) -> None:
    """Remove what a killed process left half written. Only for the one process that may write there."""
    for path in folder.glob(f".*{PARTIAL}*"):
        path.unlink(missing_ok=True)


def _save(model: Any, path: Path) -> None:
    """Save a model. For a full disk HDF5 raises errors of other classes: they are raised as OSError here."""
    try:
        model.save(path)
    except Exception as error:
        number = getattr(error, "errno", None)
        for known in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
            if number is None and (f"errno = {known}," in str(error) or os.strerror(known) in str(error)):
                raise OSError(known, os.strerror(known), str(path)) from error
        raise


def _verify(value: Any) -> Any:
    """Compare the checksum that a value may have, and return the value without it."""
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
    """Remove a file after an error; that error is raised, not one of removing."""
    with contextlib.suppress(OSError):
        path.unlink(missing_ok=True)
