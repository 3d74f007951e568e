"""What `fitroom.watch` costs, and whether it reads what the framework counts.

    python benchmarks/measure/watch_overhead.py --backend jax --out results/watch.jsonl
    python benchmarks/measure/watch_overhead.py --backend torch --out results/watch.jsonl
    python benchmarks/measure/watch_overhead.py --backend tensorflow --out results/watch.jsonl    # its own interpreter

For each of two models, a small convolutional net at 32 pixels and Xception at 96: steps per second of `model.fit` with
and without a watch, in rounds by turns in one process. `ratio` is seconds a step with the watch by those without, the
median over the rounds, with its 95 % interval (rounds drawn again), the lowest and the highest. The time is that of
steady steps: from the tenth batch of an epoch to its end. What starting and ending a watch costs once is
`once_seconds`. `own_share` is the time that the watch itself took by the time of the epoch: it needs no comparison.
Then the peak as the watch read it, and as the framework's own counter gives it for the same epoch without a watch.

About 100 seconds a backend on an H200, alone on the card and its cores. A line a model is appended to `--out`.
`--quick` makes it short, to see that it runs. `--clock cpu` counts the process's CPU time in place of the time that
passes: for training on a CPU that others use too.
"""

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

RESULTS = Path(__file__).parents[1] / "results" / "watch.jsonl"
MODELS = {"convnet": (32, 128), "xception": (96, 64)}
"""The pixels and the batch of each."""

WARM_BATCHES = 10
CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}


def main() -> None:
    """Measure both models on one backend."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", choices=("jax", "torch", "tensorflow"), required=True)
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=1.0, help="of a round, about")
    parser.add_argument("--only", choices=tuple(MODELS))
    parser.add_argument("--clock", choices=tuple(CLOCKS), default="wall")
    parser.add_argument("--quick", action="store_true")
    arguments = parser.parse_args()
    os.environ["KERAS_BACKEND"] = arguments.backend
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    for name in MODELS if arguments.only is None else (arguments.only,):
        result = measure(name, arguments)
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        with arguments.out.open("a") as lines:
            lines.write(json.dumps(result) + "\n")
        print(json.dumps(result), flush=True)


def measure(name: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """Measure one model: rounds by turns, then the peak in both ways."""
    import keras

    import fitroom
    from fitroom.backends.choose import current_backend

    backend = current_backend()
    device = backend.devices()[0]
    pixels, batch_size = MODELS[name]
    if arguments.quick:
        batch_size = 8
    training = Training(build(name, pixels), pixels, batch_size, CLOCKS[arguments.clock])
    training.run(WARM_BATCHES + 2)  # compiles
    seconds_a_step = training.run(WARM_BATCHES + 5)[0]
    steps = WARM_BATCHES + (5 if arguments.quick else max(20, int(arguments.seconds / seconds_a_step)))
    rounds = []
    for number in range(2 if arguments.quick else arguments.rounds):
        found: dict[bool, tuple[float, float]] = {}
        for is_watched in (False, True) if number % 2 else (True, False):
            watch = [fitroom.watch(verbose=False)] if is_watched else []
            found[is_watched] = training.run(steps, watch)
        rounds.append(found)
    ratios = [each[True][0] / each[False][0] for each in rounds]
    if backend.can_reset_peak:
        backend.reset_peak(device)
    training.run(steps)
    own_peak_bytes = backend.read_memory(device).peak_bytes
    with fitroom.watch(verbose=False) as watched:
        training.run(steps)
    summary = watched.summary()
    return {
        "backend": arguments.backend,
        "model": name,
        "pixels": pixels,
        "batch_size": batch_size,
        "device": device.description or device.name,
        "clock": arguments.clock,
        "steps": steps - WARM_BATCHES,
        "rounds": len(rounds),
        "seconds_a_step": {
            way: round(statistics.median(each[is_watched][0] for each in rounds), 6)
            for way, is_watched in (("plain", False), ("watched", True))
        },
        "ratio": {
            "median": round(statistics.median(ratios), 4),
            "interval": median_interval(ratios),
            "lowest": round(min(ratios), 4),
            "highest": round(max(ratios), 4),
        },
        "once_seconds": round(statistics.median(each[True][1] - each[False][1] for each in rounds), 4),
        "peak_bytes": {"read": summary.peak_bytes, "framework": own_peak_bytes},
        "phase_peak_bytes": dict(summary.phase_peak_bytes),
        "input_wait": summary.input_wait,
        "utilization": summary.devices[0].utilization,
        "own_seconds": round(summary.own_seconds, 5),
        "own_share": round(summary.own_seconds / summary.seconds, 5),
        "versions": {"keras": keras.__version__, **_version(arguments.backend)},
        "date": time.strftime("%Y-%m-%d"),
    }


def median_interval(values: list[float]) -> list[float]:
    """Where the median lies in 95 % of samples that are drawn from the values again."""
    random = Random(0)
    medians = sorted(statistics.median(random.choices(values, k=len(values))) for _ in range(2000))
    return [round(medians[50], 4), round(medians[-51], 4)]


class Training:
    """A model and its batches; an epoch of them is timed."""

    def __init__(self, model: Any, pixels: int, batch_size: int, clock: Callable[[], float]) -> None:
        import numpy as np

        random = np.random.default_rng(0)
        self.model, self.clock = model, clock
        self.batch = (
            random.random((batch_size, pixels, pixels, 3), dtype="float32"),
            random.integers(0, 5, batch_size).astype("int32"),
        )

    def run(self, steps: int, callbacks: Any = ()) -> tuple[float, float]:
        """Train one epoch. Returns the seconds of a steady step, and the seconds of `fit` beside the steady ones."""
        import keras

        batch, clock, times = self.batch, self.clock, []

        class Batches(keras.utils.PyDataset):
            def __len__(self) -> int:
                return steps

            def __getitem__(self, index: int) -> Any:
                return batch

        class Timer(keras.callbacks.Callback):
            def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
                if batch == WARM_BATCHES:
                    times.append(clock())

            def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
                times.append(clock())

        begin = clock()
        self.model.fit(Batches(), verbose=0, shuffle=False, callbacks=[*callbacks, Timer()])
        total, steady = clock() - begin, times[1] - times[0]
        return steady / (steps - WARM_BATCHES), total - steady


def build(name: str, pixels: int) -> Any:
    """Build and compile a model for five classes."""
    import keras

    if name == "xception":
        model = keras.applications.Xception(weights=None, input_shape=(pixels, pixels, 3), classes=5)
    else:
        layers: list[Any] = [keras.Input((pixels, pixels, 3))]
        for width in (32, 64, 128):
            layers += [keras.layers.Conv2D(width, 3, padding="same", activation="relu"), keras.layers.MaxPooling2D()]
        model = keras.Sequential([*layers, keras.layers.Flatten(), keras.layers.Dense(5, activation="softmax")])
    model.compile("adam", "sparse_categorical_crossentropy")
    return model


def _version(backend: str) -> dict[str, str]:
    module = __import__(backend)
    return {backend: module.__version__}


if __name__ == "__main__":
    main()
