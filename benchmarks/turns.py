"""Processes that are timed one by one, although they run side by side."""

import contextlib
import fcntl
import sys
import time
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def turn(file: Path | None, kind: int = fcntl.LOCK_EX) -> Iterator[None]:
    """Nobody else with the same file is being timed; with LOCK_SH several may be at it, and nobody is timed."""
    if file is None:
        yield
        return
    with file.open("a") as opened:
        fcntl.flock(opened, kind)
        begun = time.perf_counter()
        yield
        print(f"had the turn for {time.perf_counter() - begun:.1f} s", file=sys.stderr, flush=True)
