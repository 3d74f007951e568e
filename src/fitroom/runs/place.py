"""Whether a path can be a run folder, and the errors of one that cannot be written."""

from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryFile

from fitroom.errors import FitroomError, InputError
from fitroom.runs.layout import JOB_FILE, LOCK_FILE, PRUNED_FILE, RUN_FILE


def check_place(folder: Path) -> None:
    """Raise InputError for what cannot be a run folder, before anything is written there."""
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
    others = [name for name in names if name not in (LOCK_FILE, PRUNED_FILE) and not name.startswith(".")]
    if others:
        shown = ", ".join(others[:3]) + (", ..." if len(others) > 3 else "")
        raise InputError(
            f"`run_dir` must be a new or empty folder, or one that holds a run. Received: {folder}, with {shown}.",
            hint=f"give a folder within it: {folder / 'run'}",
        )


def check_writable(folder: Path) -> None:
    """Raise InputError for a folder that cannot be written, before the work whose result goes there.

    It is tried with a temporary file, since permissions say nothing about /proc or a disk that is mounted read-only.
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


def not_writable(folder: Path, error: OSError) -> InputError:
    """The error for a run folder that the system refuses to write."""
    return InputError(
        f"The run folder {folder} cannot be written: {error.strerror or error}.",
        hint="give a `run_dir` where you may write, on a disk with room",
    )


def not_written(path: Path, error: OSError) -> FitroomError:
    """The error for a file of a run that could not be written; what was trained is in the checkpoints."""
    return FitroomError(
        f"{path} could not be written: {error.strerror or error}.",
        hint="make room on the disk, or look whether it is well, and run the same command again: what is in the "
        "checkpoints is not trained again",
    )
