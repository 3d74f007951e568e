"""Scripts as strangers write them, plain and under `fitroom run`: the same losses? And alive where plain dies?

    python benchmarks/compatibility/strangers.py [--scripts vae,gan] [--backends tensorflow,jax,torch] [--processes 2]

Runs those of tests/helpers/scripts that tests/helpers/stranger_scripts.py lists. On every backend the printed losses
are compared; on TensorFlow both run once more on the limited CPU allocator. Writes results/strangers.json.
"""

import argparse
import importlib.metadata
import json
import platform
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
from harness.paths import RESULTS, TEST_HELPERS

sys.path.insert(0, str(TEST_HELPERS))
from stranger_scripts import ALL, ROUNDING, SCRIPTS, Script, compare, survival

FILE = RESULTS / "strangers.json"


def main() -> None:
    """Run them, several at a time, and keep what came of it beside what other scripts and backends had before."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scripts", help="names, by commas; all of them where left out")
    parser.add_argument("--backends", default=",".join(ALL))
    parser.add_argument("--processes", type=int, default=2)
    arguments = parser.parse_args()
    names = arguments.scripts.split(",") if arguments.scripts else [script.name for script in SCRIPTS]
    backends = arguments.backends.split(",")
    chosen = [script for script in SCRIPTS if script.name in names]
    jobs = [(script, backend) for script in chosen for backend in backends if backend in script.backends]
    started, lock, rows = time.time(), threading.Lock(), []

    def work(script: Script, backend: str) -> None:
        row = row_of(script, backend)
        with lock:
            rows.append(row)
            save(rows, round(time.time() - started))

    with ThreadPoolExecutor(arguments.processes) as pool:
        list(pool.map(lambda job: work(*job), jobs))
    print(json.dumps(json.loads(FILE.read_text())["summary"], indent=1))
    sys.exit(0 if all(row["is_right"] for row in rows) else 1)


def save(rows: list[dict[str, Any]], seconds: int) -> None:
    """Write the results: these rows, and those of other scripts and backends that were there."""
    before = json.loads(FILE.read_text())["rows"] if FILE.exists() else []
    done = {(row["script"], row["backend"]) for row in rows}
    known = {(script.name, backend) for script in SCRIPTS for backend in script.backends}
    kept = [row for row in before if (row["script"], row["backend"]) in known - done]
    order = [script.name for script in SCRIPTS]
    rows = sorted([*kept, *rows], key=lambda row: (order.index(row["script"]), ALL.index(row["backend"])))
    names = ("keras", "tensorflow-cpu", "jax", "torch", "fitroom")
    result = {
        "date": time.strftime("%Y-%m-%d"),
        "versions": {name: importlib.metadata.version(name) for name in names} | {"python": platform.python_version()},
        "rounding": ROUNDING,
        "seconds": seconds,
        "summary": summed(rows),
        "rows": rows,
    }
    FILE.write_text(json.dumps(result, indent=1) + "\n")


def row_of(script: Script, backend: str) -> dict[str, Any]:
    """What came of one script on one backend."""
    row: dict[str, Any] = {"script": script.name, "kind": script.kind, "backend": backend}
    row |= compare(script, backend)
    if backend == "tensorflow":
        row["limited"] = survival(script)
    row["is_right"] = row["losses"] in ("equal", "rounding", "order not fixed")
    if "limited" in row:
        expected = "survives" if script.uncut is None else "says why"
        row["is_right"] &= row["limited"]["plain"] == "dies" and row["limited"]["served"] == expected
    print(json.dumps(row), flush=True)
    return row


def summed(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Counts of the rows."""
    losses = [row["losses"] for row in rows]
    limited = [row["limited"]["served"] for row in rows if "limited" in row]
    return {
        "runs": len(rows),
        "losses": {word: losses.count(word) for word in sorted(set(losses))},
        "plain_dies_of_the_limit": sum(row["limited"]["plain"] == "dies" for row in rows if "limited" in row),
        "served_under_the_limit": {word: limited.count(word) for word in sorted(set(limited))},
        "wrong": [f"{row['script']} on {row['backend']}" for row in rows if not row["is_right"]],
    }


if __name__ == "__main__":
    main()
