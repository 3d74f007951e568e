"""A hundred real out-of-memory errors and more, at random steps: is every sample trained exactly once an epoch?

    python benchmarks/faults/stress.py [--processes 8] [--epochs 3]

Trains tests/helpers/pressure_run.py on TensorFlow's limited CPU allocator while a callback takes memory and gives it
back at random. Writes a line of results/stress.jsonl.
"""

import argparse
import importlib.metadata
import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from harness.paths import RESULTS, TEST_HELPERS

sys.path.insert(0, str(TEST_HELPERS))
from pressure import LIMIT_MB, SUM_OF_NUMBERS, trained

FILE = RESULTS / "stress.jsonl"
SAMPLES, UPDATES_AN_EPOCH = 720, 3


def main() -> None:
    """Run the processes side by side and look at their sums."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--epochs", type=int, default=3)
    arguments = parser.parse_args()
    started = time.time()
    with ThreadPoolExecutor(arguments.processes) as pool:
        found = list(pool.map(lambda seed: trained("stress", seed, arguments.epochs), range(arguments.processes)))
    right = [
        run["updates"] == UPDATES_AN_EPOCH * arguments.epochs
        and run["seen_count"] == [SAMPLES] * arguments.epochs
        and run["seen_sum"] == [SUM_OF_NUMBERS] * arguments.epochs
        for run in found
    ]
    result = {
        "out_of_memory": sum(run["out_of_memory"] for run in found),
        "runs": len(found),
        "epochs": arguments.epochs,
        "runs_with_every_sample_once_an_epoch": sum(right),
        "limit_mb": LIMIT_MB,
        "seconds": round(time.time() - started),
        "versions": {name: importlib.metadata.version(name) for name in ("tensorflow-cpu", "keras")},
        "date": time.strftime("%Y-%m-%d"),
    }
    with FILE.open("a") as lines:
        lines.write(json.dumps(result) + "\n")
    print(json.dumps(result))
    sys.exit(0 if all(right) else 1)


if __name__ == "__main__":
    main()
