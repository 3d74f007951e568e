"""Measure the corpus on a card: the allocator's peak in steady training, and whether it runs at `required_bytes`.

    python benchmarks/world/measure.py torch --out FOLDER            # peaks, many in one process (JAX: one each)
    python benchmarks/world/measure.py torch --cap --out FOLDER      # under a cap of required_bytes, one process each
    python benchmarks/world/measure.py jax --all --jobs 8 --out FOLDER    # all configurations, eight side by side

Adds lines to FOLDER/world_measured.jsonl or world_capped.jsonl; what came out well there or in results/ is not run
again, so visits add up. A configuration that takes too long, or ends its process, costs itself alone: the next one has
a new process. visit.json, visit_tensorflow.json and visit_caps.json are three visits of at most ten minutes each.
"""

import argparse
import os
import queue
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
from predict.accuracy import jax_fraction
from world.child import Child
from world.corpus import FIRST, MODES, Configuration
from world.estimates import RESULT as PREDICTED
from world.estimates import chosen, read_lines, write_line

RESULTS = Path(__file__).parents[1] / "results"
MEASURING = Path(__file__).with_name("measuring.py")
MOST_LEFT_BYTES = 2**20
"""More than that left behind by a model, and the next one has a process of its own."""


def main() -> None:
    """Measure, or train under caps, what has no line yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mode", choices=MODES)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--all", action="store_true", help="not only the first of each family")
    parser.add_argument("--only", default="", help="configurations or families that hold one of these words")
    parser.add_argument("--half", choices=("fitted", "reported"), help="of one half alone, and all of it")
    parser.add_argument("--cap", action="store_true", help="under a limit of required_bytes")
    parser.add_argument("--predicted", type=Path, default=PREDICTED, help="estimates, for --cap")
    parser.add_argument("--jobs", type=int, default=1, help="so many side by side")
    parser.add_argument("--seconds", type=int, default=150, help="for one configuration")
    parser.add_argument("--gib", type=float, default=10, help="of the card for each process, where nothing is capped")
    arguments = parser.parse_args()
    name = "world_capped.jsonl" if arguments.cap else "world_measured.jsonl"
    arguments.out.mkdir(parents=True, exist_ok=True)
    lines = [*read_lines(RESULTS / name), *read_lines(arguments.out / name)]
    done = {(line["name"], line["mode"]): line for line in lines}
    required = {(line["name"], line["mode"]): line.get("required_bytes") for line in read_lines(arguments.predicted)}
    todo: queue.SimpleQueue[tuple[Configuration, int | None]] = queue.SimpleQueue()
    for each in chosen(arguments.only):
        if each not in FIRST and not (arguments.all or arguments.only or arguments.half):
            continue
        if arguments.half not in (None, each.half):
            continue
        limit_bytes = required.get((each.name, arguments.mode)) if arguments.cap else None
        before = done.get((each.name, arguments.mode), {"crashed": ""})
        # What died under its cap is tried again once more is said to be required.
        again = "crashed" in before and (not arguments.cap or (limit_bytes or 0) > (before.get("limit_bytes") or 0))
        # Peaks of JAX with what was compiled in them, and with batches copied ahead, are measured anew.
        again = again or (arguments.mode == "jax" and not arguments.cap and "num_compiled" not in before)
        if again and (limit_bytes or not arguments.cap):
            todo.put((each, limit_bytes))
    with ThreadPoolExecutor(arguments.jobs) as pool:
        for worker in [pool.submit(_work, todo, arguments, arguments.out / name) for _ in range(arguments.jobs)]:
            worker.result()


def _work(todo: "queue.SimpleQueue[tuple[Configuration, int | None]]", arguments: Any, file: Path) -> None:
    """Measure what is left of the queue, in one process after another."""
    mode, seconds = arguments.mode, arguments.seconds
    limit_bytes = int(arguments.gib * 2**30)
    child: Child | None = None
    while True:
        try:
            each, cap_bytes = todo.get_nowait()
        except queue.Empty:
            break
        begun = time.monotonic()
        if mode == "jax" or cap_bytes:
            found = _measured_alone(each, mode, cap_bytes or limit_bytes, seconds, is_capped=bool(cap_bytes))
        else:
            child = child or _child(mode, limit_bytes, {})
            found = child.ask(each.name, seconds)
            if "crashed" in found or found["left_bytes"] > MOST_LEFT_BYTES:
                child.end()
                child = None
        line = {"name": each.name, "mode": mode, "family": each.family, "half": each.half, "limit_bytes": cap_bytes}
        took = {"seconds": round(time.monotonic() - begun, 1), "date": time.strftime("%Y-%m-%d")}
        write_line(file, line | found | took)
    if child:
        child.end()


def _measured_alone(
    configuration: Configuration, mode: str, limit_bytes: int, seconds: float, *, is_capped: bool
) -> dict[str, Any]:
    """In a process of its own; on JAX in two, of which the first compiles and times kernels.

    Autotuning takes more than the step, and JAX cannot reset its peak. Under a cap it must do with what there is.
    """
    with tempfile.TemporaryDirectory() as cache:
        environment = {}
        options = []
        if mode == "jax" and not is_capped:
            options = ["--resident"]
            environment = {
                "JAX_COMPILATION_CACHE_DIR": cache,
                "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
                "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
            }
        found: dict[str, Any] = {}
        for _ in range(2 if environment else 1):
            if "crashed" not in found:
                child = _child(mode, limit_bytes, environment, options)
                found = child.ask(configuration.name, seconds)
                child.end()
        return found


def _child(mode: str, limit_bytes: int, environment: dict[str, str], options: Sequence[str] = ()) -> Child:
    environment = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "1"} | environment
    if mode == "jax" and "XLA_CLIENT_MEM_FRACTION" not in environment and environment.get("JAX_PLATFORMS") != "cpu":
        environment["XLA_CLIENT_MEM_FRACTION"] = jax_fraction(limit_bytes)
    return Child([str(MEASURING), mode, "--limit", str(limit_bytes), *options], environment)


if __name__ == "__main__":
    main()
