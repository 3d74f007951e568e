"""Real out-of-memory errors with every sample counted; and the memory of a process after many trainings."""

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from faults.command import HERE, environment
from faults.outcome import Outcome
from harness.paths import SOURCE
from pressure import SUM_OF_NUMBERS, trained

SAMPLES, UPDATES_AN_EPOCH, EPOCHS = 720, 3, 3
ROUNDS = 50


def run_out(folder: Path, backend: str, seed: int, outcome: Outcome, *, processes: int = 2) -> None:
    """Processes side by side, each of them short of memory at random: no sample is lost or seen twice."""
    seeds = range(processes * seed, processes * (seed + 1))
    with ThreadPoolExecutor(processes) as pool:
        for one, run in zip(seeds, pool.map(lambda one: _trained(one), seeds), strict=True):
            if isinstance(run, str):
                outcome.add(f"stress, seed {one}", run)
                continue
            is_right = (
                run["updates"] == UPDATES_AN_EPOCH * EPOCHS
                and run["seen_count"] == [SAMPLES] * EPOCHS
                and run["seen_sum"] == [SUM_OF_NUMBERS] * EPOCHS
            )
            problem = None if is_right else f"samples lost or seen twice: {run['seen_count']}"
            outcome.add(f"stress, seed {one}", problem, count=run["out_of_memory"])


def _trained(seed: int) -> "dict[str, Any] | str":
    try:
        return trained("stress", seed, EPOCHS)
    except (AssertionError, subprocess.TimeoutExpired) as error:
        return f"{type(error).__name__}: {str(error)[-300:]}"


def train_again_and_again(folder: Path, backend: str, seed: int, outcome: Outcome, *, rounds: int = ROUNDS) -> None:
    """A process that trains many new models, one after the other: its memory does not grow."""
    own = environment(backend) | {"JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "2", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, str(HERE / "rounds.py"), str(rounds)],
        env=own | {"PYTHONPATH": str(SOURCE)},
        capture_output=True,
        text=True,
        timeout=3600,
    )
    found = [json.loads(line[7:]) for line in done.stdout.splitlines() if line.startswith("MEMORY ")]
    what = f"{rounds} rounds on {backend}"
    if len(found) < rounds:
        outcome.add(what, f"it ended after {len(found)}: {done.stderr[-300:]}", count=rounds)
        return
    # What a framework sets up for itself comes in the first rounds.
    settled, last = found[rounds // 2 - 1], found[-1]
    a_round = (last - settled) / (rounds - rounds // 2)
    outcome.figures[f"bytes_a_round_{backend}"] = round(a_round)
    growth = last / settled - 1
    problem = (
        None if growth < 0.02 else f"memory grew by {100 * growth:.1f} % in the second half, {a_round:,.0f} bytes each"
    )
    outcome.add(what, problem, count=rounds)
