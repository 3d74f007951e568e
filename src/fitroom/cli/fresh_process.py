"""A command that goes on in a fresh process, where memory stays taken in the one that it was started in.

The process is replaced by a new one of the same number: whoever waits for it, or has its input and output, notices
nothing. What it held of the card goes with it.
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

MOST_RESTARTS = 10


def _command() -> list[str]:
    """Python and its flags, up to the words that were typed after `fitroom`."""
    words = sys.argv[1:]
    if words and sys.orig_argv[-len(words) :] == words:
        return [sys.executable, *sys.orig_argv[1 : -len(words)]]
    return [sys.executable, "-m", "fitroom"]


@dataclass(frozen=True, kw_only=True)
class Beginning:
    """How this process was started, taken before a script changes any of it."""

    command: list[str] = field(default_factory=_command)
    words: list[str] = field(default_factory=lambda: sys.argv[1:])
    folder: str = field(default_factory=os.getcwd)
    environment: dict[str, str] = field(default_factory=lambda: dict(os.environ))

    def can_restart(self, error: OutOfMemoryError) -> bool:
        """Whether a fresh process may go on, by the error and by how many there were already."""
        is_replaceable = os.name == "posix"  # elsewhere the old one would go on holding its memory
        is_kept = error.fresh_start is not None and error.fresh_start.is_kept
        return is_replaceable and is_kept and restarts_so_far() < MOST_RESTARTS

    def reason(self, error: OutOfMemoryError) -> str:
        """What a user is told."""
        assert error.fresh_start is not None, "asked before"
        return (
            f"out of memory in {error.fresh_start.during} at every size that is left to this process; going on from "
            f"the last checkpoint in a fresh one, with micro-batch {error.fresh_start.micro_batch} "
            f"(restart {restarts_so_far() + 1} of at most {MOST_RESTARTS})"
        )

    def restart(self, words: Sequence[str | Path] | None = None) -> None:
        """Begin anew, with the words that were typed or with others. It does not return."""
        environment = self.environment | {RESTARTS: str(restarts_so_far() + 1)}
        command = [*self.command, *map(str, self.words if words is None else words)]
        os.chdir(self.folder)
        atexit._run_exitfuncs()  # processes that load data end with these
        sys.stdout.flush()
        sys.stderr.flush()
        _let_go_of_handles()
        os.execve(sys.executable, command, environment)


def _let_go_of_handles() -> None:
    """Have all but stdin, stdout and stderr closed when the new process begins: an open handle of the card would keep
    what was allocated through it."""
    handles = Path("/dev/fd")
    for name in os.listdir(handles) if handles.is_dir() else ():
        if int(name) > 2:
            with contextlib.suppress(OSError):  # the one that the folder was read through
                os.set_inheritable(int(name), False)


def say(reason: str) -> None:
    """On stderr, as everything but results."""
    click.echo(f"fitroom: {reason}", err=True)
