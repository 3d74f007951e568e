"""Files that are there whole or not at all, and stay through a power cut."""

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

PARTIAL = ".partial"
"""How the name of a half-written file ends. It is hidden, and nobody reads it."""


@contextlib.contextmanager
def written_whole(path: Path) -> Iterator[BinaryIO]:
    """A file to write to. It takes its name once all of it is on the disk; after an error nothing of it is left."""
    beside = path.with_name(f".{path.name}{PARTIAL}")
    try:
        with open(beside, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def write_json(path: Path, value: Any) -> None:
    """Write a value as JSON that people can read."""
    text = json.dumps(value, indent=1, allow_nan=False)
    with written_whole(path) as file:
        file.write(text.encode() + b"\n")


def save_whole(model: Any, path: Path) -> None:
    """Save a Keras model as a `.keras` file."""
    beside = path.with_name(f".{path.stem}{PARTIAL}.keras")  # Keras goes by the end of the name
    try:
        model.save(beside)
        with open(beside, "rb") as file:
            os.fsync(file.fileno())
        os.replace(beside, path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


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
