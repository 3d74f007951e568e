"""How right the estimates are: cases measured on a real card, and predicted without one.

    python benchmarks/predict/accuracy.py measure --out FOLDER [--records FOLDER]    # on the card
    python benchmarks/predict/accuracy.py predict [--again] [--to FILE]              # anywhere
    python benchmarks/predict/accuracy.py cap --out FOLDER [--search]                # on the card
    python benchmarks/predict/accuracy.py show --half tune                           # what came of it

`--only WORDS` and `--half tune|held-out` choose cases. All are queues: one process a case, on a card side by side as
far as it has room; what has a result is not run again, so visits to a card add up. `cap` trains under a limit of the
predicted `required_bytes`; with `--search` under smaller and smaller ones, on JAX beginning with what `predict
--smallest` found. `pages/accuracy_page.py` makes the page.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
from harness.card_queue import Room, run_side_by_side
from harness.cases import CASES, PROBES, Case

HERE = Path(__file__).parent
MEASURING = HERE.parent / "measure" / "measuring.py"
RESULTS = HERE.parent / "results"
MEASURED = "measured.jsonl"
PREDICTED = "predicted.jsonl"
CAPPED = "capped.jsonl"
SMALLEST = "smallest_caps.jsonl"
SMALLEST_LIMITS = "smallest_limits.jsonl"

CONTEXT_BYTES = 900 * 2**20
AUTOTUNING_BYTES = 7 * 2**30
SEARCHED_FACTORS = (1.1, 1.05, 1.02, 1.0, 0.99, 0.97, 0.95, 0.93, 0.91, 0.89, 0.86, 0.82, 0.75, 0.65, 0.5)
"""Times `required_bytes`: what `cap --search` tries. On JAX more than 1, since it begins with the smallest limit, under
which `cap` has not run it."""

_KEPT_OF_A_TRIAL = ("runs", "limit_bytes", "allocator_limit_bytes", "peak_bytes")

_TELLING = ("by allocator", "failed to allocate", "RESOURCE_EXHAUSTED", "OutOfMemoryError", "}}]]")
"""What lines of an error have that tell of memory, or of the operation for which there was none."""

_BYTES_A_PIXEL = {"Xception": 3000, "VGG16": 3300, "InceptionV3": 1600, "EfficientNetB3": 3600, "EfficientNetV2S": 2400}
"""Roughly, in float32, for knowing how many processes the card has room for."""


def main() -> None:
    """Do what is asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    for run in (measure, predict, cap, show):
        options = commands.add_parser(run.__name__, description=run.__doc__)
        options.set_defaults(run=run)
        options.add_argument("--only", default="", help="cases whose name holds one of these words, with commas")
        options.add_argument("--half", choices=("tune", "held-out"))
        if run in (measure, cap):
            options.add_argument("--out", type=Path, required=True)
            options.add_argument("--workers", type=int, default=8)
            options.add_argument("--room", type=int, default=130, help="GiB of the card to use at once")
    commands.choices["measure"].add_argument("--probes", action="store_true", help="the probes instead of the cases")
    commands.choices["measure"].add_argument("--records", type=Path, help="folder for what each operation took")
    commands.choices["predict"].add_argument("--again", action="store_true", help="anew what was predicted before")
    commands.choices["predict"].add_argument("--smallest", action="store_true", help="under the smallest limit")
    commands.choices["predict"].add_argument("--to", type=Path, default=RESULTS / PREDICTED)
    commands.choices["cap"].add_argument("--search", action="store_true", help="find the smallest cap that works")
    arguments = parser.parse_args()
    arguments.run(arguments)


def chosen(arguments: argparse.Namespace, cases: Iterable[Case] = CASES) -> list[Case]:
    """The cases that the flags name."""
    words = arguments.only.split(",")
    return [case for case in cases if any(word in case.name for word in words) and arguments.half in (None, case.half)]


def measure(arguments: argparse.Namespace) -> None:
    """Measure the cases that have no result yet; those that fail side by side run again alone."""
    arguments.out.mkdir(parents=True, exist_ok=True)
    done = {found["name"] for found in (*read_lines(RESULTS / MEASURED), *read_lines(arguments.out / MEASURED))}
    cases = chosen(arguments, PROBES if arguments.probes else CASES)
    todo = sorted((case for case in cases if case.name not in done), key=rough_bytes, reverse=True)

    def work(case: Case) -> dict[str, Any]:
        learnt_from = arguments.probes or case.half == "tune"
        return measure_in_child(case, rough_bytes(case), arguments.records if learnt_from else None)

    room = Room(arguments.room * 2**30)
    failed = []
    for workers in (arguments.workers, 1):
        for result in run_side_by_side(todo, work, rough_bytes, room=room, workers=workers):
            if "peak_bytes" in result:
                append_line(arguments.out / MEASURED, result)
            else:
                failed.append(result["name"])
            # Not the figure: half of them is not to be looked at yet.
            print(result["name"], f"{result['seconds']} s", result.get("error", "")[-400:], flush=True)
        todo, failed = [case for case in todo if case.name in failed], []


def predict(arguments: argparse.Namespace) -> None:
    """Predict the cases that have no prediction yet."""
    file = RESULTS / SMALLEST_LIMITS if arguments.smallest else arguments.to
    measured = {found["name"]: found for found in read_lines(RESULTS / MEASURED)}
    kept = {found["name"]: found for found in read_lines(file)}
    for case in chosen(arguments):
        if case.name in kept and not arguments.again:
            continue
        command = [sys.executable, str(HERE / "predicting.py"), json.dumps(case.to_dict())]
        if limit := "smallest" if arguments.smallest else measured.get(case.name, {}).get("limit_bytes"):
            command += ["--limit", str(limit)]
        found = run_child(command, dict(os.environ)) | {"name": case.name}
        print(case.name, found.get("seconds", ""), found.get("error", "")[-400:], flush=True)
        if "error" not in found:
            # Read again: another process may be at work on other cases.
            kept = {found["name"]: found for found in read_lines(file)} | {case.name: found}
            in_order = [kept[case.name] for case in CASES if case.name in kept]
            file.write_text("".join(json.dumps(found) + "\n" for found in in_order))


def cap(arguments: argparse.Namespace) -> None:
    """Train under a limit of the predicted `required_bytes`: does it run? With `--search`: how much less would do?"""
    arguments.out.mkdir(parents=True, exist_ok=True)
    file = SMALLEST if arguments.search else CAPPED
    predicted = [*read_lines(RESULTS / PREDICTED), *(read_lines(RESULTS / SMALLEST_LIMITS) if arguments.search else [])]
    required_bytes = {found["name"]: found["required_bytes"] for found in predicted}
    results = (*read_lines(RESULTS / file), *read_lines(arguments.out / file))

    def is_answered(found: dict[str, Any]) -> bool:
        """What failed is tried again once more is said to be required; what ran, once less is."""
        now_bytes = required_bytes.get(found["name"], 0)
        if found.get("runs", True):
            return bool(arguments.search or found["limit_bytes"] <= now_bytes)
        return bool(found["limit_bytes"] >= now_bytes)

    done = {found["name"] for found in results if is_answered(found)}
    todo = [case for case in chosen(arguments) if case.name in required_bytes and case.name not in done]

    def work(case: Case) -> dict[str, Any]:
        try_case = smallest_cap if arguments.search else run_capped
        return try_case(case, required_bytes[case.name])

    def needed_bytes(case: Case) -> int:
        return required_bytes[case.name] + CONTEXT_BYTES

    todo.sort(key=needed_bytes, reverse=True)
    room = Room(arguments.room * 2**30)
    for result in run_side_by_side(todo, work, needed_bytes, room=room, workers=arguments.workers):
        append_line(arguments.out / file, result)
        print(json.dumps(result)[:600], flush=True)


def show(arguments: argparse.Namespace) -> None:
    """Print measured and predicted side by side."""
    measured = {found["name"]: found["peak_bytes"] for found in read_lines(RESULTS / MEASURED)}
    predicted = {found["name"]: found["predicted_bytes"] for found in read_lines(RESULTS / PREDICTED)}
    for case in chosen(arguments):
        if case.name in measured and case.name in predicted:
            error = predicted[case.name] / measured[case.name] - 1
            print(f"{case.name:70} {measured[case.name]:>15,} {predicted[case.name]:>15,} {100 * error:+8.3f} %")


def rough_bytes(case: Case) -> int:
    """Room for a case on the card, with autotuning; ample, since a measurement must not be squeezed."""
    if case.model in ("MLP", "LSTM", "Transformer"):
        return 10 * 2**30
    narrow = 1.0 if case.precision == "float32" else 0.6
    eager = 2.2 if case.backend == "torch" else 1.2
    activation_bytes = case.batch_size * case.size**2 * _BYTES_A_PIXEL.get(case.model, 1700) * narrow * eager
    return int(activation_bytes) + AUTOTUNING_BYTES


def measure_in_child(case: Case, room_bytes: int, records: Path | None = None) -> dict[str, Any]:
    """One case in a process of its own.

    On JAX in two: the first compiles and times kernels, the second takes the executable from the compilation cache, so
    that autotuning is not in its peak. TensorFlow and PyTorch can reset theirs.
    """
    command = [sys.executable, str(MEASURING), json.dumps(case.to_dict())]
    if case.backend == "tensorflow":  # else it would take the whole card
        command += ["--limit", str(room_bytes)]
    if records and case.backend != "jax" and not case.jit:
        command += ["--records", str(records / f"{case.name}.json.gz")]
    started = time.time()
    with tempfile.TemporaryDirectory() as cache:
        environment = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "2"}
        if case.backend == "jax":
            environment |= {
                "XLA_CLIENT_MEM_FRACTION": jax_fraction(room_bytes),
                "JAX_COMPILATION_CACHE_DIR": cache,
                "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
                "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
            }
            subprocess.run(command, env=environment, capture_output=True)
        if records and case.backend == "tensorflow" and case.jit:
            dump = f" --xla_dump_to={records / case.name} --xla_dump_hlo_as_text"
            environment["XLA_FLAGS"] = environment.get("XLA_FLAGS", "") + dump
        return run_child(command, environment) | {"name": case.name, "seconds": round(time.time() - started, 1)}


def run_capped(case: Case, limit_bytes: int) -> dict[str, Any]:
    """`fit` in a process whose allocator is limited, autotuning and all.

    On TensorFlow it is fed one batch at a time: arrays it would put on the card whole.
    """
    fields = case.to_dict() | {"feed": "batches" if case.backend == "tensorflow" else "fit"}
    command = [sys.executable, str(MEASURING), json.dumps(fields), "--limit", str(limit_bytes)]
    environment = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "0"}
    if case.backend == "jax":
        environment["XLA_CLIENT_MEM_FRACTION"] = jax_fraction(limit_bytes)
    found = run_child(command, environment)
    kept: dict[str, Any] = {
        key: found[key] for key in ("peak_bytes", "reserved_bytes", "versions", "gpu", "date") if key in found
    }
    if "stats" in found:  # a fraction of the card is not to the byte, so say what JAX made of it
        kept["allocator_limit_bytes"] = found["stats"]["bytes_limit"]
    runs = "peak_bytes" in found
    why_not = {} if runs else {"error": what_went_wrong(found["error"])}
    return {"name": case.name, "limit_bytes": limit_bytes, "runs": runs} | kept | why_not


def smallest_cap(case: Case, required_bytes: int) -> dict[str, Any]:
    """The smallest of the factors of `required_bytes` under which it still runs, by bisection."""
    factors = SEARCHED_FACTORS
    works, fails = -1, len(factors)
    trials: dict[float, dict[str, Any]] = {}
    while fails - works > 1:
        middle = (works + fails) // 2
        found = run_capped(case, int(required_bytes * factors[middle]))
        trials[factors[middle]] = {key: found[key] for key in _KEPT_OF_A_TRIAL if key in found}
        works, fails = (middle, fails) if found["runs"] else (works, middle)
    return {
        "name": case.name,
        "required_bytes": required_bytes,
        "smallest_factor": factors[works] if works >= 0 else None,
        "largest_failing_factor": factors[fails] if fails < len(factors) else None,
        "trials": trials,
    }


def run_child(command: list[str], environment: dict[str, str]) -> dict[str, Any]:
    """The result that a child prints, or its error."""
    finished = subprocess.run(command, env=environment, capture_output=True, text=True, errors="replace")
    lines = [line for line in finished.stdout.splitlines() if line.startswith("RESULT ")]
    if lines:
        return json.loads(lines[-1][7:])
    print(finished.stderr, file=sys.stderr)
    return {"error": finished.stderr[-3000:]}


def what_went_wrong(stderr: str) -> str:
    """The lines of an error that tell of memory, or the last one: not where on that machine which file lies."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    telling = [line for line in lines if any(words in line for words in _TELLING)]
    return "\n".join(telling or lines[-1:])[-600:]


def jax_fraction(limit_bytes: int) -> str:
    """The limit as JAX takes it: a fraction of what CUDA sees of the card, which the driver's share is no part of."""
    import pynvml

    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    memory = pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2)
    return f"{limit_bytes / (memory.total - memory.reserved):.9f}"


def read_lines(file: Path) -> list[dict[str, Any]]:
    """A file of JSON lines; none where there is no file."""
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def append_line(file: Path, value: dict[str, Any]) -> None:
    """One more line."""
    with file.open("a") as lines:
        lines.write(json.dumps(value) + "\n")


if __name__ == "__main__":
    main()
