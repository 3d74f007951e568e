"""Kills: of `fit` and of `fitroom train`, at random moments and within scan, save, fsync, rename or evaluation."""

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

from faults.command import HERE, SECONDS, TRAIN, Hangs, fitroom, left_over, place, state_of, unforeseen
from faults.outcome import Outcome
from harness.paths import SOURCE, TEST_HELPERS

POINTS = {"scan": 60, "fsync": 45, "replace": 40, "save": 3, "evaluate": 1, "export": 1, "report": 1, "checkpoint": 9}
"""Of a training, with about how often each is reached."""

FIT = TEST_HELPERS / "killed_run.py"


def kill_train(folder: Path, backend: str, seed: int, outcome: Outcome) -> None:
    """One training of `fitroom train`, killed once or twice, and run again to its end."""
    place(folder)
    expected = _reference(folder, backend)
    moments = random.Random(f"{backend}-{seed}")
    run = folder / f"killed-{backend}-{seed}"
    faults = [_fault(moments) for _ in range(moments.choice((1, 1, 2)))]
    what = f"train on {backend}, {faults}"
    try:
        kills = 0
        for fault in faults:
            done = fitroom(folder, *TRAIN, "--run-dir", str(run), backend=backend, fault=fault)
            kills += done.returncode == -9
        done = fitroom(folder, *TRAIN, "--run-dir", str(run), backend=backend)
        outcome.add(what, _problem(done, run, expected), count=kills)
    except Hangs as error:
        outcome.add(what, str(error))


def kill_fit(folder: Path, backend: str, seed: int, outcome: Outcome) -> None:
    """One training of `fitroom.fit`, killed twice within a call, and run again to its end."""
    expected = _fitted(folder / f"fit-{backend}", backend, None)[1]
    moments = random.Random(f"fit-{backend}-{seed}")
    run = folder / f"fit-{backend}-{seed}"
    counts = {"fsync": 60, "replace": 50, "checkpoint": 45, "save": 1}
    faults = []
    for _ in range(2):
        point = moments.choice(list(counts))
        what = moments.choice(("kill", "kill after"))
        faults.append({"point": point, "number": moments.randint(1, counts[point]), "what": what})
    what = f"fit on {backend}, {faults}"
    try:
        kills = sum(_fitted(run, backend, fault)[0] == -9 for fault in faults)
        code, found, said = _fitted(run, backend, None)
        problem = None if found == expected else f"exit {code}, another result: {said[-300:]}"
        outcome.add(what, problem, count=kills)
    except Hangs as error:
        outcome.add(what, str(error))


def _fitted(run: Path, backend: str, fault: Any) -> tuple[int, Any, str]:
    """A call of tests/helpers/killed_run.py: its exit code, its result and what it said."""
    kept = run.with_suffix(".json")
    if fault is None and kept.exists():
        return 0, json.loads(kept.read_text()), ""
    paths = os.pathsep.join([str(SOURCE), str(FIT.parent), os.environ.get("PYTHONPATH", "")])
    own = {"KERAS_BACKEND": backend, "JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "2", "CUDA_VISIBLE_DEVICES": ""}
    try:
        done = subprocess.run(
            [sys.executable, str(HERE / "inject.py"), str(FIT), str(run)],
            env=os.environ | own | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "FAULT": json.dumps(fault)},
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )
    except subprocess.TimeoutExpired:
        raise Hangs("fit hangs") from None
    found = [line[7:] for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    if found and fault is None:
        kept.write_text(found[-1])
    return done.returncode, json.loads(found[-1]) if found else None, done.stderr


def _fault(moments: random.Random) -> dict[str, Any]:
    point = moments.choice(list(POINTS))
    what = moments.choice(("kill", "kill after"))
    return {"point": point, "number": moments.randint(1, POINTS[point]), "what": what}


def _reference(folder: Path, backend: str) -> dict[str, Any]:
    run = folder / f"undisturbed-{backend}"
    if not (run / "results.json").exists():
        done = fitroom(folder, *TRAIN, "--run-dir", str(run), backend=backend)
        assert done.returncode == 0, done.stderr
    return state_of(run)


def _problem(done: Any, run: Path, expected: dict[str, Any]) -> str | None:
    if strange := unforeseen(done):
        return strange
    if done.returncode:
        return f"exit {done.returncode}: {done.stderr[-300:]}"
    found = state_of(run)
    differs = [name for name in expected if found[name] != expected[name]]
    return f"other {', '.join(differs)}" if differs else left_over(run)
