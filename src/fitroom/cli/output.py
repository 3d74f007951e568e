"""Stdout for results, stderr for everything else."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout

_STDOUT, _STDERR = 1, 2


@contextmanager
def stdout_for_results() -> Iterator[None]:
    """Send to stderr what the user's own code prints while it builds and is traced, and the programs it starts."""
    if sys.stdout is None:  # closed, as `>&-` does: there is nothing to keep clean
        yield
        return
    sys.stdout.flush()
    kept = os.dup(_STDOUT)
    os.dup2(_STDERR, _STDOUT)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(kept, _STDOUT)
        os.close(kept)


@contextmanager
def progress() -> Iterator[Callable[[str], None]]:
    """Say on stderr what is under way: one line that changes in a terminal, a line each in a log."""
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda text: console.print(f"{text} ...", highlight=False, soft_wrap=True)
        return
    with console.status("starting") as status:
        yield lambda text: status.update(f"{text} ...")
