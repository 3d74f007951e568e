"""Processes that are timed one by one, although they run side by side.

`TURN_CORES=0-4` in the environment: cores that only the one whose turn it is has; the others are to be started on the
rest (`taskset -c 5-15 python ...`), where they compile meanwhile.
"""

import contextlib
import fcntl
import os
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
        with _cores_to_itself() if kind == fcntl.LOCK_EX else contextlib.nullcontext():
            yield
        print(f"had the turn for {time.perf_counter() - begun:.1f} s", file=sys.stderr, flush=True)


@contextlib.contextmanager
def _cores_to_itself() -> Iterator[None]:
    if "TURN_CORES" not in os.environ:
        yield
        return
    first, last = map(int, os.environ["TURN_CORES"].split("-"))
    before = os.sched_getaffinity(0)
    _move_threads(set(range(first, last + 1)))
    try:
        yield
    finally:
        _move_threads(before)


def _move_threads(cores: set[int]) -> None:
    for thread in os.listdir("/proc/self/task"):
        with contextlib.suppress(ProcessLookupError):  # it has ended meanwhile
            os.sched_setaffinity(int(thread), cores)
