"""Checkpoints: the state of a run at one moment. The last two are kept."""

import contextlib
import errno
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fitroom.errors import InputError
from fitroom.files.archive import DamagedError, read_archive, write_archive
from fitroom.files.durable import open_atomic, remove_partial
from fitroom.runs.layout import CHECKPOINT_SUFFIX, DAMAGED_SUFFIX

KEPT = 2
_DISK_FULL = (errno.ENOSPC, errno.EDQUOT)


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """All that a run is resumed from."""

    arrays: dict[str, Any]
    """NumPy arrays of numbers by name, which are not changed any more."""

    facts: dict[str, Any]
    """JSON: epoch, batch, history, recipe, random state. Tuples come back as lists; infinity and NaN survive."""


@dataclass(frozen=True, kw_only=True)
class Found:
    """A checkpoint that was read. `note` says why it is not the newest one."""

    checkpoint: Checkpoint
    path: Path
    note: str | None
    """For people; None where it is the newest."""


def write(folder: Path, checkpoint: Checkpoint) -> Path:
    """Write a checkpoint and remove all but the last two.

    Raises OSError where it cannot be written, with the last good one as it was. On a full disk the older of two is
    removed first: a disk that holds two checkpoints is enough.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{_next_number(folder):08d}{CHECKPOINT_SUFFIX}"
    try:
        _write_one(path, checkpoint)
    except OSError as error:
        older = _paths(folder)[:-1]
        if error.errno not in _DISK_FULL or not older or not _would_fit(folder, older, checkpoint):
            raise
        for one in older:
            one.unlink()
        _write_one(path, checkpoint)
    _prune(folder)
    return path


def read_latest(folder: Path) -> Found | None:
    """Read the newest checkpoint that is whole; None where there is none.

    A damaged newer one is set aside and named in the note. Raises InputError where all are damaged.
    """
    reasons: dict[Path, str] = {}
    for path in reversed(_paths(folder)):
        try:
            arrays, facts = read_archive(path)
        except DamagedError as error:
            reasons[path] = f"{path.name}: {error}"
            continue
        for damaged in reasons:
            with contextlib.suppress(OSError):
                damaged.rename(damaged.with_name(damaged.name + DAMAGED_SUFFIX))
        note = f"A newer checkpoint is damaged ({'; '.join(reasons.values())}): {path.name} is taken."
        return Found(checkpoint=Checkpoint(arrays=arrays, facts=facts), path=path, note=note if reasons else None)
    if reasons:
        raise InputError(
            f"No checkpoint in {folder} can be read ({'; '.join(reasons.values())}).",
            hint="restore them from a backup, or start anew in another `run_dir`",
        )
    return None


def has_checkpoint(folder: Path) -> bool:
    """Whether a folder has a checkpoint, whole or not."""
    return bool(_paths(folder))


def _write_one(path: Path, checkpoint: Checkpoint) -> None:
    with open_atomic(path) as file:
        write_archive(file, checkpoint.arrays, checkpoint.facts)


def _would_fit(folder: Path, older: list[Path], checkpoint: Checkpoint) -> bool:
    needed_bytes = sum(int(array.nbytes) for array in checkpoint.arrays.values())
    gained_bytes = sum(path.stat().st_size for path in older)
    return shutil.disk_usage(folder).free + gained_bytes > needed_bytes


def _prune(folder: Path) -> None:
    """Remove what is no longer needed. A file that cannot be removed does not stop a training."""
    paths = _paths(folder)
    unneeded = paths[:-KEPT]
    if len(paths) >= KEPT:
        unneeded += folder.glob(f"*{DAMAGED_SUFFIX}")
    for path in unneeded:
        with contextlib.suppress(OSError):
            path.unlink()
    with contextlib.suppress(OSError):
        remove_partial(folder)


def _paths(folder: Path) -> list[Path]:
    """The checkpoint files, oldest first."""
    return sorted(path for path in folder.glob(f"*{CHECKPOINT_SUFFIX}") if path.stem.isdigit())


def _next_number(folder: Path) -> int:
    """One above all that were used, also by damaged ones: a number is never used twice."""
    numbers = [int(path.name.partition(".")[0]) for path in folder.glob(f"[0-9]*{CHECKPOINT_SUFFIX}*")]
    return max(numbers, default=0) + 1
