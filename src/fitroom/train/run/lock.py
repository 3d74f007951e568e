"""One process at a time works in a run folder.

The lock is the system's own (`flock`): it ends with the process, however that ends, so a killed run leaves no stale
lock behind. The file's text says who holds it, for people.
"""

import contextlib
import json
import os
import socket
import time
from pathlib import Path

from fitroom.errors import InputError

_held: set[int] = set()


class FolderLock:
    """A lock that is held from here until `release`."""

    def __init__(self, path: Path) -> None:
        """Take the lock. Raises InputError where another process has it, OSError where the file cannot be made."""
        self._handle: int | None = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self.is_sure = self._take(path)
        """False where the file system knows no locks: then nothing stops a second process."""
        _held.add(self._handle)
        holder = {"pid": os.getpid(), "host": socket.gethostname(), "since": time.strftime("%Y-%m-%d %H:%M:%S")}
        with contextlib.suppress(OSError):  # a full disk: the lock holds without its text
            os.ftruncate(self._handle, 0)
            os.pwrite(self._handle, json.dumps(holder).encode(), 0)

    def release(self) -> None:
        """Let others in. The file stays: to remove it would let two processes hold two files of one name."""
        if self._handle is not None:
            _held.discard(self._handle)
            os.close(self._handle)
            self._handle = None

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


def is_locked(path: Path) -> bool | None:
    """Whether some process works in the folder of this lock now; None where the system does not tell."""
    try:
        import fcntl

        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except (ImportError, OSError):
        return None
    try:
        # Shared, and let go at once: others who look are not in the way.
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
        holder = json.loads(path.read_text())
        pid, host, since = int(holder["pid"]), str(holder["host"]), str(holder["since"])
    except (OSError, ValueError, KeyError, TypeError):
        return InputError(f"The run folder {path.parent} is in use by another process.", hint="give another `run_dir`")
    if (pid, host) == (os.getpid(), socket.gethostname()):
        return InputError(
            f"The run folder {path.parent} is in use in this very process, since {since}.",
            hint="end the training that uses it, or give each its own `run_dir`",
        )
    return InputError(
        f"The run folder {path.parent} is in use by process {pid} on {host}, since {since}.",
        hint="wait until that run ends, stop it, or give another `run_dir`",
    )


def _close_in_child() -> None:
    """A forked worker would hold the lock on after its parent was killed."""
    for handle in _held:
        with contextlib.suppress(OSError):
            os.close(handle)
    _held.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_in_child)
