"""Fifty kills at random moments: is the result bit for bit that of a run that was never killed?

    python benchmarks/faults/kill_runs.py torch [--kills 50] [--runs 10]      # or jax, tensorflow

Writes a line of results/kills.jsonl. The training is that of tests/helpers/killed_run.py, on the CPU.
"""

import argparse
import importlib
import json
import os
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from harness.paths import RESULTS, TEST_HELPERS

sys.path.insert(0, str(TEST_HELPERS))
from kills import trained

FILE = RESULTS / "kills.jsonl"


def main() -> None:
    """Train once undisturbed, then several times under fire, and compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("backend", choices=("jax", "torch", "tensorflow"))
    parser.add_argument("--kills", type=int, default=50, help="in all")
    parser.add_argument("--runs", type=int, default=10, help="trainings that share them")
    parser.add_argument("--out", type=Path, default=FILE)
    arguments = parser.parse_args()
    os.environ["KERAS_BACKEND"] = arguments.backend
    started, kills, same = time.time(), 0, 0
    with tempfile.TemporaryDirectory() as folder:
        expected, _ = trained(Path(folder) / "undisturbed", arguments.backend)
        for number in range(arguments.runs):
            share = -(-(arguments.kills - kills) // (arguments.runs - number))
            found, done = trained(Path(folder) / f"run{number}", arguments.backend, kills=share, seed=number)
            kills += done
            same += found == expected
            print(f"run {number}: {done} kills, {'the same' if found == expected else 'NOT the same'}", flush=True)
    result = {
        "backend": arguments.backend,
        "kills": kills,
        "runs": arguments.runs,
        "bit_identical": same,
        "seconds": round(time.time() - started),
        "versions": {name: importlib.import_module(name).__version__ for name in (arguments.backend, "keras")},
        "date": time.strftime("%Y-%m-%d"),
    }
    with arguments.out.open("a") as lines:
        lines.write(json.dumps(result) + "\n")
    print(json.dumps(result))
    sys.exit(0 if same == arguments.runs else 1)


if __name__ == "__main__":
    main()
