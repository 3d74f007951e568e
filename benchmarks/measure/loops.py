"""Memory of a loop that builds and trains a model in each round: plain, by the usual advice, `fresh()`, `trials`.

    python benchmarks/measure/loops.py                                    # 100 rounds of a small net, each backend
    python benchmarks/measure/loops.py --model xception96 --rounds 20 --jobs 9 --seconds 330 --out loops.jsonl  # a card
    python benchmarks/measure/loops.py --backends torch --ways fresh --rounds 20

Each backend and way is a process of its own. After each round the bytes in use on the device and on the host's heap are
read, and the process's size. With `trials`, where a round is a process, these are its device's bytes, the heap of the
loop's process, and the sizes of both. A way is flat where, from round 5 on, the 95 % interval of the growth of both
device and process contains 0 and its upper end is under 0.1 % of the most that a round had. Each process writes a
line of results/loops.jsonl.
"""

import argparse
import concurrent.futures
import datetime
import gc
import importlib.metadata
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parents[1] / "results" / "loops.jsonl"
BACKENDS = ("jax", "tensorflow", "torch")
FIRST_JUDGED = 5
FLAT_SHARE = 0.001


def run_plain(one_round: Callable[[], None]) -> None:
    """The round alone."""
    one_round()


def run_advice(one_round: Callable[[], None]) -> None:
    """The round, and after it what forums advise."""
    import keras

    one_round()
    keras.backend.clear_session()
    gc.collect()


def run_fresh(one_round: Callable[[], None]) -> None:
    """The round in a block of `fitroom.fresh()`."""
    import fitroom

    with fitroom.fresh():
        one_round()


WAYS: dict[str, Callable[[Callable[[], None]], None]] = {"plain": run_plain, "advice": run_advice, "fresh": run_fresh}
"""How a round is carried out in the process of the loop, by name."""
TRIALS = "trials"
"""The way of which each round is a process of its own, one trial of `fitroom.trials`."""


def main() -> None:
    """Measure each backend and way, and append the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backends", default=",".join(BACKENDS))
    parser.add_argument("--ways", default=",".join([*WAYS, TRIALS]))
    parser.add_argument("--model", choices=MODELS, default="dense")
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="a process starts no round after these")
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        measure_way = measure_trials if options.child == TRIALS else measure
        print(json.dumps(measure_way(options.child, options.model, options.rounds, options.seconds)))
        return
    wanted = [(backend, way) for backend in options.backends.split(",") for way in options.ways.split(",")]
    with tempfile.TemporaryDirectory() as programs, concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        running = [pool.submit(run_child, backend, way, options, programs) for backend, way in wanted]
        for each in concurrent.futures.as_completed(running):
            if (record := each.result()) is not None:
                options.out.parent.mkdir(parents=True, exist_ok=True)
                with options.out.open("a") as file:
                    file.write(json.dumps(record) + "\n")


def run_child(backend: str, way: str, options: argparse.Namespace, programs: str) -> dict[str, Any] | None:
    """Measure one backend and way in a process of its own; None where that failed."""
    environment = os.environ | {
        "KERAS_BACKEND": backend,
        "JAX_COMPILATION_CACHE_DIR": programs,  # rounds of the same model on a card would each compile for minutes
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
        "TF_FORCE_GPU_ALLOW_GROWTH": "true",
        "TF_CPP_MIN_LOG_LEVEL": "3",
    }
    command = [sys.executable, __file__, "--child", way, "--model", options.model, "--rounds", str(options.rounds)]
    command += ["--seconds", str(options.seconds)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"{backend} {way}: exit code {done.returncode}\n{done.stderr[-2000:]}", file=sys.stderr)
        return None
    record: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    grown = {name: round(record[name]["bytes_a_round"]) for name in ("device", "heap", "process") if record[name]}
    print(f"{backend} {way}: {record['rounds']} rounds, bytes a round {grown}, flat: {record['flat']}", flush=True)
    return record


def make_dense() -> Callable[[], None]:
    """One round: a small net, built, compiled and fitted for two steps."""
    import keras
    import numpy as np

    x = np.random.default_rng(0).normal(size=(64, 64)).astype("float32")
    y = (x[:, 0] > 0).astype("int32")

    def one_round() -> None:
        layers = [keras.layers.Dense(256, "relu"), keras.layers.Dense(256, "relu"), keras.layers.Dense(2)]
        model = keras.Sequential([keras.Input((64,)), *layers])
        model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
        model.fit(x, y, batch_size=32, verbose=0)

    return one_round


def make_xception96() -> Callable[[], None]:
    """One round: Xception at 96 pixels, built, compiled and fitted for two steps of 32 images."""
    import keras
    import numpy as np

    x = np.random.default_rng(0).normal(size=(64, 96, 96, 3)).astype("float32")
    y: Any = np.arange(64, dtype="int32") % 5
    # XLA inside TensorFlow keeps no programs on disk, and would compile for half a minute in each round.
    jit = False if keras.backend.backend() == "tensorflow" else "auto"

    def one_round() -> None:
        model = keras.applications.Xception(weights=None, input_shape=(96, 96, 3), classes=5)
        model.compile("adam", "sparse_categorical_crossentropy", jit_compile=jit)
        model.fit(x, y, batch_size=32, verbose=0)

    return one_round


MODELS = {"dense": make_dense, "xception96": make_xception96}


def measure(way: str, model: str, rounds: int, seconds: float) -> dict[str, Any]:
    """Carry out the rounds in this process, and return the readings and what they say."""
    from fitroom.backends.choose import current_backend

    one_round, run, backend = MODELS[model](), WAYS[way], current_backend()
    device = backend.devices()[0]
    readings, peaks = no_readings()
    start = time.monotonic()

    def watched_round() -> None:
        one_round()
        for name, value in read().items():
            peaks[name] = max(peaks[name], value)

    for _ in range(rounds):
        if time.monotonic() - start > seconds:
            break
        run(watched_round)
        for name, value in read().items():
            readings[name].append(value)
    peaks["device"] = backend.read_memory(device).peak_bytes or peaks["device"]
    return record_of(way, model, device.description or device.name, time.monotonic() - start, readings, peaks)


def measure_trials(way: str, model: str, rounds: int, seconds: float) -> dict[str, Any]:
    """Carry out each round as a trial of `fitroom.trials`; the table of all of them is in one folder."""
    import fitroom
    from fitroom.loops.host import read_host

    readings, peaks = no_readings()
    start = time.monotonic()
    name = "unknown"
    with tempfile.TemporaryDirectory() as folder:
        for number in range(rounds):
            if time.monotonic() - start > seconds:
                break
            settings = [{"model": model, "number": earlier} for earlier in range(number + 1)]
            row = fitroom.trials(run_trial, settings, Path(folder, "trials"))[number]
            if row.result is None:
                raise RuntimeError(f"round {number} as a trial: {row.state}: {row.error}")
            host, name = read_host(), row.result.pop("name")
            sizes = row.result | {"heap": host.heap_bytes or 0}
            sizes["process"] += host.resident_bytes
            for kind, value in sizes.items():
                readings[kind].append(value)
                peaks[kind] = max(peaks[kind], value)
    return record_of(way, model, name, time.monotonic() - start, readings, peaks)


def run_trial(model: str, number: int) -> dict[str, Any]:
    """One round in the process of a trial: what its device and its process hold at the end."""
    from fitroom.backends.choose import current_backend

    MODELS[model]()()
    device = current_backend().devices()[0]
    return read() | {"name": device.description or device.name}


def no_readings() -> tuple[dict[str, list[int]], dict[str, int]]:
    """No readings yet, and no largest ones, of each kind of memory."""
    kinds = ("device", "heap", "process")
    return {kind: [] for kind in kinds}, dict.fromkeys(kinds, 0)


def read() -> dict[str, int]:
    """The bytes in use on the device and on the heap, and the size of this process."""
    from fitroom.backends.choose import current_backend
    from fitroom.loops.host import read_host

    backend = current_backend()
    in_use = backend.read_memory(backend.devices()[0]).in_use_bytes
    if in_use is None:
        in_use = sum(size for _, size in backend.live_arrays())
    host = read_host()
    return {"device": in_use, "heap": host.heap_bytes or 0, "process": host.resident_bytes}


def record_of(
    way: str, model: str, device: str, seconds: float, readings: dict[str, list[int]], peaks: dict[str, int]
) -> dict[str, Any]:
    """What is kept of one backend and way: the readings, how they grew, on what."""
    backend = os.environ["KERAS_BACKEND"]
    judged: dict[str, Any] = {name: judge(values, peaks[name]) for name, values in readings.items()}
    return {
        "backend": backend,
        "way": way,
        "model": model,
        "device_name": device,
        "rounds": len(readings["device"]),
        "seconds": round(seconds, 1),
        **judged,
        "flat": None if None in judged.values() else all(judged[name]["flat"] for name in ("device", "process")),
        "readings": readings,
        "versions": {name: importlib.metadata.version(name) for name in ("keras", backend) if _is_installed(name)}
        | {"python": sys.version.split()[0]},
        "date": datetime.datetime.now(tz=datetime.UTC).date().isoformat(),
    }


def judge(values: list[int], peak_bytes: int) -> dict[str, Any] | None:
    """How a kind of memory grew from round 5 on, and whether it is flat; None where the rounds were too few."""
    from fitroom.loops.slope import fit_slope

    slope = fit_slope(values[FIRST_JUDGED:])
    if slope is None:
        return None
    is_flat = slope.low_bytes <= 0 <= slope.high_bytes and slope.high_bytes < FLAT_SHARE * peak_bytes
    return {
        "bytes_a_round": slope.bytes_a_round,
        "low_bytes": slope.low_bytes,
        "high_bytes": slope.high_bytes,
        "peak_bytes": peak_bytes,
        "flat": is_flat,
    }


def _is_installed(name: str) -> bool:
    try:
        importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:  # TensorFlow has other names where it is for the CPU alone
        return False
    return True


if __name__ == "__main__":
    main()
