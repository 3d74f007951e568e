"""Train the corpus on a card in half of the memory that plain Keras needs: by `fitroom.fit`, and by plain Keras.

    python benchmarks/world/survive.py torch --out FOLDER            # or jax, tensorflow-graph, tensorflow-jit
    python benchmarks/world/survive.py torch --jobs 4 --only "text,detector" --out FOLDER

The cap of a configuration is half of the peak that `measure.py` found for it, in results/ or in FOLDER. Each training
is a process of its own: `fitroom.fit` with the whole batch, then plain `fit` with that batch, half of it and so on,
until one runs. Adds a line a configuration to FOLDER/world_survived.jsonl: whether each ran, the samples a second of
its last epoch, what fitroom did about it, and the bytes that weights, optimizer and gradients take whatever the batch.
With `--jobs` several share the card and its host: the two speeds of a line then compare only roughly.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
from predict.accuracy import jax_fraction, what_went_wrong
from world.corpus import FIRST, MODES, Configuration, by_name
from world.estimates import read_lines, write_line
from world.measure import RESULTS
from world.measuring import make_batches, make_counter

STEPS, EPOCHS = 4, 3
SECONDS = 150


def main() -> None:
    """Train what has no line yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mode", choices=MODES)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--only", default="", help="configurations or families that hold one of these words")
    parser.add_argument("--until", type=float, default=float("inf"), help="seconds after which none is begun")
    parser.add_argument("--child", nargs=4, metavar=("NAME", "WAY", "BATCH", "LIMIT"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    os.environ |= {"KERAS_BACKEND": arguments.mode.partition("-")[0], "TF_CPP_MIN_LOG_LEVEL": "2"}
    if arguments.child:
        name, way, size, limit = arguments.child
        print("RESULT " + json.dumps(train(by_name(name), arguments.mode, way, int(size), int(limit))))
        return
    file = arguments.out / "world_survived.jsonl"
    measured = [*read_lines(RESULTS / "world_measured.jsonl"), *read_lines(arguments.out / "world_measured.jsonl")]
    peaks = {line["name"]: line.get("peak_bytes") for line in measured if line["mode"] == arguments.mode}
    lines = [*read_lines(RESULTS / "world_survived.jsonl"), *read_lines(file)]
    done = {line["name"] for line in lines if line["mode"] == arguments.mode}
    started = time.monotonic()

    def survive(configuration: Configuration) -> None:
        if time.monotonic() - started > arguments.until:
            return
        peak_bytes = peaks[configuration.name]
        assert peak_bytes is not None, "only what has a peak is wanted"
        line = {"name": configuration.name, "mode": arguments.mode, "family": configuration.family}
        write_line(file, line | compare(configuration, arguments.mode, peak_bytes))

    wanted = [each for each in FIRST if peaks.get(each.name) and each.name not in done]
    wanted = [
        each for each in wanted if any(word in f"{each.name} {each.family}" for word in arguments.only.split(","))
    ]
    with ThreadPoolExecutor(arguments.jobs) as pool:
        list(pool.map(survive, wanted))


def compare(configuration: Configuration, mode: str, peak_bytes: int) -> dict[str, Any]:
    """Both ways under half of a peak; plain Keras with smaller batches until one runs."""
    limit_bytes, size = peak_bytes // 2, configuration.batch_size
    found: dict[str, Any] = {"limit_bytes": limit_bytes, "peak_bytes": peak_bytes, "batch_size": size}
    found["fitroom"] = run_child(configuration, mode, "fitroom", size, limit_bytes)
    if found["fitroom"].get("resting_bytes", 0) > limit_bytes:
        return found | {
            "no_room": "weights, gradients and slots take more than the cap",
            "date": time.strftime("%Y-%m-%d"),
        }
    while size >= 1:
        found["keras"] = run_child(configuration, mode, "keras", size, limit_bytes) | {"batch_size": size}
        if "samples_per_s" in found["keras"]:
            break
        size //= 2
    return found | {"date": time.strftime("%Y-%m-%d")}


def run_child(configuration: Configuration, mode: str, way: str, size: int, limit_bytes: int) -> dict[str, Any]:
    """One training in a process of its own."""
    environment = dict(os.environ)
    if mode == "jax":
        environment["XLA_CLIENT_MEM_FRACTION"] = jax_fraction(limit_bytes)
    command = [sys.executable, __file__, mode, "--out", "/", "--child", configuration.name, way, str(size)]
    try:
        ended = subprocess.run(
            [*command, str(limit_bytes)], env=environment, capture_output=True, text=True, timeout=SECONDS
        )
    except subprocess.TimeoutExpired:
        return {"failed": f"longer than {SECONDS} s"}
    results = [text for text in ended.stdout.splitlines() if text.startswith("RESULT ")]
    return json.loads(results[-1][7:]) if results else {"failed": what_went_wrong(ended.stderr[-6000:])}


def train(configuration: Configuration, mode: str, way: str, size: int, limit_bytes: int) -> dict[str, Any]:
    """Three epochs of the same few batches under the limit; samples a second of the last epoch."""
    import keras

    import fitroom

    make_counter(mode, limit_bytes or None)
    ends: list[float] = []
    found: dict[str, Any] = {}
    try:
        model = configuration.compile(configuration.load(values=True))
        if mode.startswith("tensorflow"):
            model.jit_compile = mode == "tensorflow-jit"
        found["resting_bytes"] = resting_bytes(model)
        batches = make_batches(configuration, model, STEPS, size)
        timer = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: ends.append(time.perf_counter()))
        fit: Any = fitroom.fit if way == "fitroom" else keras.Model.fit
        history = fit(model, batches, epochs=EPOCHS, verbose=0, callbacks=[timer])
        losses = [float(each) for each in history.history["loss"]]
    except Exception as error:
        return found | {"failed": f"{type(error).__name__}: {what_went_wrong(str(error))}"}
    told = getattr(history, "fitroom", {})
    found |= {"samples_per_s": round(size * STEPS / (ends[-1] - ends[-2]), 1), "loss": losses[-1]}
    found |= {name: told[name] for name in ("micro_batch", "out_of_memory") if name in told}
    return found | {"events": [event["message"] for event in told.get("events", ())]}


def resting_bytes(model: Any) -> int:
    """What weights, their gradients and the optimizer's slots take, whatever the batch."""

    def size_bytes(variables: Any) -> int:
        return sum(4 * int(np.prod(each.shape)) for each in variables)

    import numpy as np

    trained = model.trainable_variables
    slots = 2 if "adam" in model.optimizer.name else len(model.optimizer.variables) // max(len(trained), 1)
    return size_bytes(model.variables) + (1 + slots) * size_bytes(trained)


if __name__ == "__main__":
    main()
