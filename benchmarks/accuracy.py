"""How right the estimates are: cases measured on a real card, and predicted without one.

    python benchmarks/accuracy.py measure --out FOLDER [--only WORDS] [--half tune] [--records FOLDER]    # on the card
    python benchmarks/accuracy.py predict [--only WORDS] [--half tune] [--again]                          # anywhere
    python benchmarks/accuracy.py cap --out FOLDER [--only WORDS] [--search]                              # on the card

`measure` and `cap` are queues: one process a case, side by side as far as the card has room; what has a result in
FOLDER or in benchmarks/results is not run again, so visits to a card add up. `accuracy_page.py` makes the page.
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

sys.path.insert(0, str(Path(__file__).parent))
from card_queue import Room, run_side_by_side
from cases import CASES, PROBES, Case

HERE = Path(__file__).parent
RESULTS = HERE / "results"
MEASURED = "measured.jsonl"
CAPPED = "capped.jsonl"
CONTEXT_BYTES = 900 * 2**20

_BYTES_A_PIXEL = {"Xception": 3000, "VGG16": 3300, "InceptionV3": 1600, "EfficientNetB3": 3600, "EfficientNetV2S": 2400}
"""Roughly, in float32, for knowing how many processes the card has room for."""


def main() -> None:
    """Do what is asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    for command, run in (("measure", measure), ("cap", cap), ("predict", predict)):
        options = commands.add_parser(command)
        options.set_defaults(run=run)
        options.add_argument("--only", default="", help="cases whose name holds one of these words, with commas")
        options.add_argument("--half", choices=("tune", "held-out"))
        if command == "predict":
            options.add_argument("--again", action="store_true", help="predict anew what was predicted before")
            options.add_argument("--xla", default="", help="a note on the compiler")
            continue
        options.add_argument("--out", type=Path, required=True)
        options.add_argument("--workers", type=int, default=8)
        options.add_argument("--room", type=int, default=130, help="GiB of the card to use at once")
    commands.choices["measure"].add_argument("--probes", action="store_true", help="the probes instead of the cases")
    commands.choices["measure"].add_argument("--records", type=Path, help="folder for what each operation took")
    commands.choices["cap"].add_argument("--search", action="store_true", help="find the smallest cap that works")
    arguments = parser.parse_args()
    arguments.run(arguments)


def chosen(arguments: argparse.Namespace, cases: Iterable[Case]) -> list[Case]:
    """The cases that the flags name."""
    words = arguments.only.split(",")
    return [case for case in cases if any(word in case.name for word in words) and arguments.half in (None, case.half)]


def measure(arguments: argparse.Namespace) -> None:
    """Run the cases that have no result yet; those that fail side by side run again alone."""
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


def rough_bytes(case: Case) -> int:
    """Room for a case on the card, with autotuning; ample, since a measurement must not be squeezed."""
    if case.model in ("MLP", "LSTM", "Transformer"):
        return 10 * 2**30
    narrow = 1.0 if case.precision == "float32" else 0.6
    eager = 2.2 if case.backend == "torch" else 1.2
    activation_bytes = case.batch_size * case.size**2 * _BYTES_A_PIXEL.get(case.model, 1700) * narrow * eager
    return int(activation_bytes) + 7 * 2**30


def measure_in_child(case: Case, limit_bytes: int | None, records: Path | None = None) -> dict[str, Any]:
    """One case in a process of its own.

    On JAX in two: the first compiles and times kernels, the second takes the executable from the compilation cache, so
    that autotuning is not in its peak. TensorFlow and PyTorch can reset theirs.
    """
    command = [sys.executable, str(HERE / "measuring.py"), json.dumps(case.to_dict())]
    if case.backend == "tensorflow" and limit_bytes:
        command += ["--limit", str(limit_bytes)]
    if records and case.backend != "jax" and not case.jit:
        command += ["--records", str(records / f"{case.name}.json.gz")]
    started = time.time()
    with tempfile.TemporaryDirectory() as cache:
        environment = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "2"}
        if case.backend == "jax":
            environment |= jax_environment(limit_bytes, cache)
            subprocess.run(command, env=environment, capture_output=True)
        if records and case.backend == "tensorflow" and case.jit:
            dump = f" --xla_dump_to={records / case.name} --xla_dump_hlo_as_text"
            environment["XLA_FLAGS"] = environment.get("XLA_FLAGS", "") + dump
        return run_child(command, environment) | {"name": case.name, "seconds": round(time.time() - started, 1)}


def run_child(command: list[str], environment: dict[str, str]) -> dict[str, Any]:
    """The result that a child prints, or its error."""
    finished = subprocess.run(command, env=environment, capture_output=True, text=True, errors="replace")
    lines = [line for line in finished.stdout.splitlines() if line.startswith("RESULT ")]
    return json.loads(lines[-1][7:]) if lines else {"error": finished.stderr[-3000:]}


def jax_environment(limit_bytes: int | None, cache: str) -> dict[str, str]:
    """Settings of a JAX process."""
    share = 0.9 if limit_bytes is None else limit_bytes / visible_bytes()
    return {
        "XLA_CLIENT_MEM_FRACTION": f"{share:.9f}",
        "JAX_COMPILATION_CACHE_DIR": cache,
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }


def visible_bytes() -> int:
    """What the allocator's fraction is a fraction of: the card less what the driver reserves."""
    import pynvml

    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    memory = pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2)
    return int(memory.total - memory.reserved)


def cap(arguments: argparse.Namespace) -> None:
    raise NotImplementedError


def predict(arguments: argparse.Namespace) -> None:
    raise NotImplementedError


def read_lines(file: Path) -> list[dict[str, Any]]:
    """A file of JSON lines; none where there is no file."""
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def append_line(file: Path, value: dict[str, Any]) -> None:
    """One more line."""
    with file.open("a") as lines:
        lines.write(json.dumps(value) + "\n")


if __name__ == "__main__":
    main()
