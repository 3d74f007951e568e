"""Resuming a command in a fresh process, when memory cannot be released in the first one.

The process is replaced by a new one with the same process id: whoever waits for it, or reads its output, notices
nothing. The memory that it held on the card is released.
"""

import atexit
import contextlib
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import click

from fitroom.environment import RESTARTS, restarts_so_far
from fitroom.errors import OutOfMemoryError

MAX_RESTARTS = 10


def _command() -> list[str]:
    """The command that started this process: Python and its flags, without the arguments after `fitroom`."""
    words = sys.argv[1:]
    if words and sys.orig_argv[-len(words) :] == words:
        return [sys.executable, *sys.orig_argv[1 : -len(words)]]
    return [sys.executable, "-m", "fitroom"]


@dataclass(frozen=True, kw_only=True)
class Beginning:
    """How this process was started, recorded before a script changes any of it."""

    command: list[str] = field(default_factory=_command)
    words: list[str] = field(default_factory=lambda: sys.argv[1:])
    folder: str = field(default_factory=os.getcwd)
    environment: dict[str, str] = field(default_factory=lambda: dict(os.environ))

    def can_restart(self, error: OutOfMemoryError) -> bool:
        """Whether a fresh process can resume, by the error and by the number of restarts so far."""
        is_replaceable = os.name == "posix"  # elsewhere the old process would keep its memory
        is_kept = error.fresh_start is not None and error.fresh_start.is_kept
        return is_replaceable and is_kept and restarts_so_far() < MAX_RESTARTS

    def reason(self, error: OutOfMemoryError) -> str:
        """The message for the user."""
        assert error.fresh_start is not None, "see can_restart"
        return (
            f"out of memory in {error.fresh_start.during} at every size left to this process; resuming from the last "
            f"checkpoint in a fresh process with micro-batch {error.fresh_start.micro_batch} "
            f"(restart {restarts_so_far() + 1} of at most {MAX_RESTARTS})"
        )

    def restart(self, words: Sequence[str | Path] | None = None) -> None:
        """Replace this process, with the same arguments or with others. It does not return."""
        environment = self.environment | {RESTARTS: str(restarts_so_far() + 1)}
        command = [*self.command, *map(str, self.words if words is None else words)]
        os.chdir(self.folder)
        atexit._run_exitfuncs()  # these end processes that load data
        sys.stdout.flush()
        sys.stderr.flush()
        _close_handles_on_exec()
        os.execve(sys.executable, command, environment)


def _close_handles_on_exec() -> None:
    """Mark all handles but stdin, stdout and stderr to be closed in the new process: an open handle of the card would
    keep its memory allocated."""
    handles = Path("/dev/fd")
    for name in os.listdir(handles) if handles.is_dir() else ():
        if int(name) > 2:
            with contextlib.suppress(OSError):  # the one that the folder was read through
                os.set_inheritable(int(name), False)


def say(reason: str) -> None:
    """Print a message to stderr."""
    click.echo(f"fitroom: {reason}", err=True)
