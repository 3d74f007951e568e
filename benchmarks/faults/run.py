"""Provokes faults for as long as it is given, and counts what was survived and what was lost.

    python benchmarks/faults/run.py --minutes 10
    python benchmarks/faults/run.py --minutes 60 --only kills,torn --backends torch,jax
    python benchmarks/faults/run.py --tries kills=100,torn=200,memory=200,dirty=500     # until so many were tried

kills     of `fit` and of `fitroom train`, also within scan, save, fsync, rename, evaluation, export and report
torn      files of a run folder cut, zeroed, swapped or gone
disks     trainings on real disks that are too small (where this machine lets us mount one)
errors    one call of the system fails with EIO or ENOSPC
hostile   run folders and `.keras` files of a stranger's
dirty     folders of broken images, pipes, devices and names that are no text, end to end
memory    real out-of-memory errors on TensorFlow's limited allocator, every sample counted
rounds    the memory of a process over fifty trainings
misuse    wrong calls of the API, beside Keras

Appends a line for each kind and backend to results/faults.jsonl. Exit code 1 where something was lost.
"""

import argparse
import importlib.metadata
import json
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from faults import command, dirty, disks, hostile, killing, memory, misuse, torn
from faults.outcome import Outcome
from harness.paths import RESULTS

FILE = RESULTS / "faults.jsonl"
Provoke = Callable[[Path, str, int, Outcome], None]
KINDS: dict[str, list[Provoke]] = {
    "kills": [killing.kill_train, killing.kill_fit],
    "torn": [torn.tear_fit, torn.tear_train],
    "disks": [disks.fill_disk],
    "errors": [disks.fail_writing],
    "hostile": [hostile.attack_runs, hostile.attack_models],
    "dirty": [dirty.train_on_dirt],
    "memory": [memory.run_out],
    "rounds": [memory.train_again_and_again],
    "misuse": [misuse.call_wrongly],
}
ONCE = ("rounds", "misuse", "hostile")
"""Kinds of which a second try on a backend says nothing new."""

ONE_BACKEND = {"memory": "tensorflow"}
PACKAGES = ("keras", "numpy", "torch", "jax", "tensorflow", "tensorflow-cpu")


def main() -> None:
    """Take turns until the time is over or all tries are done."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=None, help="[default: 10, or no end with --tries]")
    parser.add_argument("--only", default=",".join(KINDS), help="kinds, separated by commas")
    parser.add_argument("--tries", default="", help="how many of a kind, over all backends: kills=100,torn=200")
    parser.add_argument("--backends", default=",".join(command.BACKENDS))
    parser.add_argument("--seed", type=int, default=int(time.time()), help="[default: another one each time]")
    parser.add_argument("--out", type=Path, default=FILE)
    arguments = parser.parse_args()
    wanted = {
        name: int(number) for name, _, number in (part.partition("=") for part in arguments.tries.split(",") if part)
    }
    kinds = list(wanted) if wanted else arguments.only.split(",")
    if unknown := [name for name in kinds if name not in KINDS]:
        parser.error(f"unknown kind {unknown[0]!r}; known are: {', '.join(KINDS)}")
    if "disks" in kinds and not disks.may_mount():
        print("this machine lets us mount nothing: disks are left out", file=sys.stderr)
        kinds.remove("disks")
    minutes = arguments.minutes if arguments.minutes is not None else (10.0 if not wanted else float("inf"))
    ends = time.monotonic() + 60 * minutes
    outcomes: dict[tuple[str, str], tuple[Outcome, float]] = {}
    with tempfile.TemporaryDirectory(prefix="fitroom-faults-") as folder:
        for kind, provoke, backend, seed in turns(kinds, arguments.backends.split(","), arguments.seed):
            if time.monotonic() > ends:
                break
            of_kind = [one for (name, _), (one, _) in outcomes.items() if name == kind]
            if kind in wanted and sum(one.tries for one in of_kind) >= wanted[kind]:
                if all(_done(name, outcomes) >= number for name, number in wanted.items()):
                    break
                continue
            started = time.monotonic()
            outcome, seconds = outcomes.get((kind, backend), (Outcome(kind, backend), 0.0))
            lost = len(outcome.lost)
            provoke(Path(folder), backend, seed, outcome)
            outcomes[kind, backend] = outcome, seconds + time.monotonic() - started
            said = "; ".join(outcome.lost[lost:]) or "survived"
            print(f"{kind} on {backend}: {outcome.tries} tries, {len(outcome.lost)} lost; {said}", flush=True)
    write(outcomes, arguments.out, arguments.seed)
    sys.exit(1 if any(outcome.lost for outcome, _ in outcomes.values()) else 0)


def turns(kinds: list[str], backends: list[str], seed: int) -> Iterator[tuple[str, Provoke, str, int]]:
    """Kinds and backends by turns, so that a short time has something of each."""
    number, once = 0, set()
    order = random.Random(seed).sample(backends, len(backends))
    while True:
        is_empty = True
        for kind in kinds:
            provokes = KINDS[kind]
            backend = ONE_BACKEND.get(kind, order[number % len(order)])
            # Kills of `fit` and of `train` by turns on each backend.
            provoke = provokes[(number // len(order)) % len(provokes)]
            if kind in ONCE and (provoke, backend) in once:
                continue
            once.add((provoke, backend))
            is_empty = False
            yield kind, provoke, backend, seed % 10**6 + number
        number += 1
        if is_empty and number > len(order) * 2:
            return


def _done(kind: str, outcomes: dict[tuple[str, str], tuple[Outcome, float]]) -> int:
    return sum(outcome.tries for (name, _), (outcome, _) in outcomes.items() if name == kind)


def write(outcomes: dict[tuple[str, str], tuple[Outcome, float]], file: Path, seed: int) -> None:
    """A line for each kind and backend."""
    versions = {}
    for name in PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    import fitroom

    with file.open("a") as lines:
        for outcome, seconds in outcomes.values():
            about = {"seconds": round(seconds), "seed": seed, "fitroom": fitroom.__version__, "versions": versions}
            line = outcome.to_dict() | about | {"date": time.strftime("%Y-%m-%d")}
            lines.write(json.dumps(line) + "\n")
            print(
                json.dumps({name: line[name] for name in ("kind", "backend", "tries", "survived", "lost", "seconds")})
            )


if __name__ == "__main__":
    main()
