"""Torn files: a run folder with one or two files cut, zeroed, emptied, swapped or gone, as a fault of the disk has it.

A run either ends exactly as the undisturbed one, or says in a clear error what cannot be had. It is never called
finished with a state put together of two moments.
"""

import json
import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from faults.command import HERE, SECONDS, TRAIN, Hangs, fitroom, left_over, place, state_of, unforeseen
from faults.killing import _reference
from faults.outcome import Outcome
from harness.paths import SOURCE

WAYS = ("gone", "empty", "cut", "zeros", "flipped", "swapped")


def tear_files(run: Path, chance: random.Random) -> str:
    """Damage one file of a run folder or two; which, and how."""
    files = sorted(path for path in run.rglob("*") if path.is_file() and path.name != "lock")
    said = []
    for path in chance.sample(files, chance.choice((1, 1, 2))):
        way = chance.choice(WAYS)
        tear(path, way, chance)
        said.append(f"{path.relative_to(run)} {way}")
    return ", ".join(said)


def tear(path: Path, way: str, chance: random.Random) -> None:
    """Damage one file."""
    data = path.read_bytes()
    at = chance.randrange(len(data) + 1)
    if way == "gone":
        path.unlink()
        return
    flipped = bytearray(data)
    if data:
        flipped[at % len(data)] ^= 1 << chance.randrange(8)
    others = [other for other in path.parent.iterdir() if other.is_file() and other.suffix == path.suffix]
    torn = {
        "empty": b"",
        "cut": data[:at],
        "zeros": data[:at] + bytes(len(data) - at),
        "flipped": bytes(flipped),
        "swapped": chance.choice(others).read_bytes(),
    }
    path.write_bytes(torn[way])


def tear_train(folder: Path, backend: str, seed: int, outcome: Outcome) -> None:
    """A finished run of `fitroom train` with torn files, and the same command again."""
    place(folder)
    expected = _reference(folder, backend)
    chance = random.Random(f"torn-{backend}-{seed}")
    run = folder / f"torn-{backend}-{seed}"
    shutil.copytree(folder / f"undisturbed-{backend}", run)
    command = [word.replace(f"undisturbed-{backend}", run.name) for word in TRAIN]
    what = f"train on {backend}: {tear_files(run, chance)}"
    try:
        done = fitroom(folder, *command, "--run-dir", str(run), backend=backend)
        outcome.add(what, _problem(done, run, expected))
        outcome.figures["told"] = outcome.figures.get("told", 0) + (done.returncode == 1)
    except Hangs as error:
        outcome.add(what, str(error))
    shutil.rmtree(run, ignore_errors=True)


def tear_fit(folder: Path, backend: str, seed: int, outcome: Outcome, *, count: int = 25) -> None:
    """Runs of `fitroom.fit`, finished or not, with torn files; all in one process, which is quick."""
    own = {"KERAS_BACKEND": backend, "JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "2"}
    from faults.command import environment

    done = subprocess.run(
        [sys.executable, str(HERE / "torn_fit.py"), str(folder / f"torn-fit-{backend}-{seed}"), str(seed), str(count)],
        env=environment(backend) | own | {"PYTHONPATH": f"{SOURCE}:{HERE.parent}", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=SECONDS * 2,
    )
    lines = [json.loads(line[6:]) for line in done.stdout.splitlines() if line.startswith("TRIED ")]
    for what, problem, is_told in lines:
        outcome.add(f"fit on {backend}: {what}", problem)
        outcome.figures["told"] = outcome.figures.get("told", 0) + is_told
    if len(lines) < count:
        outcome.add(f"fit on {backend}, seed {seed}", f"the process ended: {done.stderr[-500:]}")


def _problem(done: Any, run: Path, expected: dict[str, Any]) -> str | None:
    if strange := unforeseen(done):
        return strange
    if done.returncode == 1 and "error:" in done.stderr:  # told what cannot be had
        return None
    if done.returncode:
        return f"exit {done.returncode}: {done.stderr[-300:]}"
    found = state_of(run)
    differs = [name for name in ("weights", "results") if found[name] != expected[name]]
    return f"other {', '.join(differs)}" if differs else left_over(run)
