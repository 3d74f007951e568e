"""Disks that are too small, real ones, and errors of input and output at every place where `fitroom train` writes."""

import random
import subprocess
from pathlib import Path
from typing import Any

from faults.command import TRAIN, Hangs, fitroom, left_over, place, state_of, unforeseen
from faults.killing import _reference
from faults.outcome import Outcome

_UNSHARE = ("unshare", "--map-root-user", "--mount", "sh", "-c")
_COUNTS = {"fsync": 45, "replace": 40, "save": 3, "checkpoint": 9, "open": 60, "unlink": 40}


def may_mount() -> bool:
    """Whether this machine lets us have a disk of our own."""
    try:
        done = subprocess.run([*_UNSHARE, "mount -t tmpfs none /mnt"], capture_output=True, timeout=30)
    except (FileNotFoundError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def fill_disk(folder: Path, backend: str, seed: int, outcome: Outcome) -> None:
    """A training on a disk that is too small: a clear error; with room made, the same command completes."""
    place(folder)
    expected = _reference(folder, backend)
    size_kib = random.Random(f"disk-{seed}").randint(30, 640)
    run = folder / f"disk-{backend}-{seed}"
    run.mkdir(exist_ok=True)
    kept = folder / f"disk-{backend}-{seed}-kept"
    script = (
        f"mount -t tmpfs -o size={size_kib}k none '{run}' && {{ \"$@\"; code=$?; echo first=$code; }}; "
        f"mount -o remount,size=64m '{run}' && \"$@\"; code=$?; cp -r '{run}' '{kept}'; exit $code"
    )
    what = f"a disk of {size_kib} KiB on {backend}"
    try:
        done = fitroom(folder, *TRAIN, "--run-dir", str(run), backend=backend, prefix=(*_UNSHARE, script, "sh"))
        outcome.add(what, _problem(done, kept, expected))
    except Hangs as error:
        outcome.add(what, str(error))


def fail_writing(folder: Path, backend: str, seed: int, outcome: Outcome) -> None:
    """A training in which one call of the system fails: a clear error or a warning; run again, it completes."""
    place(folder)
    expected = _reference(folder, backend)
    moments = random.Random(f"errors-{seed}")
    point = moments.choice(list(_COUNTS))
    run = folder / f"errors-{backend}-{seed}"
    fault: dict[str, Any] = {
        "point": point,
        "number": moments.randint(1, _COUNTS[point]),
        "what": moments.choice(("EIO", "ENOSPC")),
    }
    fault |= {"within": str(run), "mark": f"{run}-reached"}
    what = f"{fault['what']} in {point} {fault['number']} on {backend}"
    try:
        first = fitroom(folder, *TRAIN, "--run-dir", str(run), backend=backend, fault=fault)
        if strange := unforeseen(first):
            outcome.add(what, strange)
            return
        if first.returncode not in (0, 1):
            outcome.add(what, f"exit {first.returncode}")
            return
        done = fitroom(folder, *TRAIN, "--run-dir", str(run), backend=backend)
        outcome.add(what, _problem(done, run, expected), count=int(Path(fault["mark"]).exists()))
    except Hangs as error:
        outcome.add(what, str(error))


def _problem(done: Any, run: Path, expected: dict[str, Any]) -> str | None:
    if strange := unforeseen(done):
        return strange
    if done.returncode:
        return f"exit {done.returncode}: {done.stderr[-400:]}"
    found = state_of(run)
    differs = [name for name in expected if found[name] != expected[name]]
    return f"other {', '.join(differs)}" if differs else left_over(run)
