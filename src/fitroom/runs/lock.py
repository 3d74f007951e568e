"""The lock of a run folder: one process at a time works in it.

The lock is the system's own (`flock`): it ends with the process, however that ends, so a killed run leaves no stale
lock behind. The file's text says who holds it, for people.
"""

import contextlib
import json
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

from fitroom.errors import InputError
from fitroom.files.durable import NO_LINKS, read_json

_held: set[int] = set()
_lent: dict[Path, "FolderLock"] = {}


class FolderLock:
    """A lock that is held from here until `release`."""

    def __init__(self, path: Path) -> None:
        """Take the lock. Raises InputError where another process has it, OSError where the file cannot be made."""
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | NO_LINKS | getattr(os, "O_NONBLOCK", 0)
        self._handle: int | None = os.open(path, flags, 0o644)
        self.is_sure = self._take(path)
        """False where the file system has no locks: then nothing stops a second process."""
        _held.add(self._handle)
        holder = {"pid": os.getpid(), "host": socket.gethostname(), "since": time.strftime("%Y-%m-%d %H:%M:%S")}
        with contextlib.suppress(OSError):  # a full disk: the lock holds without its text
            os.ftruncate(self._handle, 0)
            os.pwrite(self._handle, json.dumps(holder).encode(), 0)

    def release(self) -> None:
        """Release the lock. The file stays: to remove it would let two processes lock two files of one name."""
        if self._handle is not None:
            _held.discard(self._handle)
            os.close(self._handle)
            self._handle = None

    @contextlib.contextmanager
    def lend(self, path: Path) -> Iterator[None]:
        """Let `take_lock` of the same file borrow this lock within the block, for a training that is part of a job."""
        key = path.resolve()
        _lent[key] = self
        try:
            yield
        finally:
            _lent.pop(key, None)

    def _take(self, path: Path) -> bool:
        assert self._handle is not None
        try:
            import fcntl
        except ImportError:  # Windows
            return False
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._handle)
            raise _in_use(path) from None
        except OSError:
            return False
        return True


class BorrowedLock:
    """A lock that the job around a training holds. To release it returns it to the job; the folder stays locked."""

    def __init__(self, path: Path, lock: FolderLock) -> None:
        self._key, self._lock = path.resolve(), lock
        self.is_sure = lock.is_sure

    def release(self) -> None:
        """Return the lock to the job, whose next training may borrow it."""
        _lent[self._key] = self._lock


def take_lock(path: Path) -> "FolderLock | BorrowedLock":
    """Take the lock of a run folder, or borrow it from the job that this training is part of."""
    lender = _lent.pop(path.resolve(), None)
    return BorrowedLock(path, lender) if lender is not None else FolderLock(path)


def is_locked(path: Path) -> bool | None:
    """Whether some process holds this lock; None where the system does not tell.

    A job that holds the lock itself, between the trainings that borrow it, does not count.
    """
    if path.resolve() in _lent:
        return False
    try:
        import fcntl

        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | NO_LINKS | getattr(os, "O_NONBLOCK", 0))
    except FileNotFoundError:
        return False
    except (ImportError, OSError):
        return None
    try:
        # Shared, and released immediately: several processes may check at the same time.
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return None
    finally:
        os.close(handle)
    return False


def _in_use(path: Path) -> InputError:
    try:
        holder = read_json(path, largest_bytes=4096)
        pid, host, since = int(holder["pid"]), str(holder["host"]), str(holder["since"])
    except (OSError, ValueError, KeyError, TypeError):
        return InputError(f"The run folder {path.parent} is in use by another process.", hint="give another `run_dir`")
    if (pid, host) == (os.getpid(), socket.gethostname()):
        return InputError(
            f"The run folder {path.parent} is in use in this process, since {since}.",
            hint="end the training that uses it, or give each its own `run_dir`",
        )
    return InputError(
        f"The run folder {path.parent} is in use by process {pid} on {host}, since {since}.",
        hint="wait until that run ends, stop it, or give another `run_dir`",
    )


def _close_in_child() -> None:
    """Close the lock in a forked worker, which would hold it after its parent was killed."""
    for handle in _held:
        with contextlib.suppress(OSError):
            os.close(handle)
    _held.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_in_child)
