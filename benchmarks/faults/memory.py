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
    """A process that trains many new models, one after the other: its memory grows no more than in plain Keras."""
    what = f"{rounds} rounds on {backend}"
    found = _memory_by_round(backend, rounds)
    if isinstance(found, str):
        outcome.add(what, found, count=rounds)
        return
    a_round = _bytes_a_round(found)
    outcome.figures[f"bytes_a_round_{backend}"] = a_round
    growth = found[-1] / found[rounds // 2 - 1] - 1
    if growth < 0.02:
        outcome.add(what, None, count=rounds)
        return
    # TensorFlow keeps something of every function that it traced, also in plain Keras.
    plain = _memory_by_round(backend, rounds, "plain")
    of_plain = 0 if isinstance(plain, str) else _bytes_a_round(plain)
    outcome.figures[f"plain_bytes_a_round_{backend}"] = of_plain
    said = (
        f"memory grew by {100 * growth:.1f} % in the second half, {a_round:,} bytes a round; plain Keras {of_plain:,}"
    )
    outcome.add(what, said if a_round > 1.1 * of_plain else None, count=rounds)


def _memory_by_round(backend: str, rounds: int, *arguments: str) -> "list[int] | str":
    """The bytes of a process after each round, or why it ended before the last."""
    own = environment(backend) | {"JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "2", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, str(HERE / "rounds.py"), str(rounds), *arguments],
        env=own | {"PYTHONPATH": str(SOURCE)},
        capture_output=True,
        text=True,
        timeout=3600,
    )
    found = [json.loads(line[7:]) for line in done.stdout.splitlines() if line.startswith("MEMORY ")]
    return found if len(found) == rounds else f"it ended after {len(found)}: {done.stderr[-300:]}"


def _bytes_a_round(found: list[int]) -> int:
    """Over the second half: what a framework sets up for itself comes in the first rounds."""
    half = len(found) // 2
    return round((found[-1] - found[half - 1]) / (len(found) - half))
