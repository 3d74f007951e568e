"""What `fitroom.fit` costs beside Keras's own `fit`, and that it survives a card that is too small.

    python benchmarks/measure/fit.py speed      --backend torch      # seconds a step beside Keras's own fit
    python benchmarks/measure/fit.py memory     --backend torch      # the peak of each
    python benchmarks/measure/fit.py checkpoint --backend torch      # a checkpoint every 60 s (or --every) against none
    python benchmarks/measure/fit.py survive    --backend torch --limit 8GiB     # 20 batches and a short one, capped

Speed and memory are of two trainings: "plain", where everything fits and nothing special is asked, and "accumulate",
four micro-batches an update beside Keras's `gradient_accumulation_steps=4`.

Where there is a GPU it is Xception at 299 pixels, else a small net. Times are taken by turns in one process, so that
what is compared ran side by side; peaks come from a process each. One line of results/fit.jsonl a call (`--out` says
where else). `--quick` makes it short, to see that it runs.
"""

import argparse
import contextlib
import fcntl
import functools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
from harness.turns import turn

HERE = Path(__file__).parent
RESULTS = HERE.parent / "results" / "fit.jsonl"
WAYS = ("keras", "fitroom")
TRAININGS = ("plain", "accumulate")


def main() -> None:
    """Measure what is asked and append it to the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("speed", "memory", "checkpoint", "survive"))
    parser.add_argument("--backend", choices=("jax", "torch", "tensorflow"), required=True)
    parser.add_argument("--jit", action=argparse.BooleanOptionalAction, help="jit_compile on TensorFlow")
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--limit", help="the allocator's, for survive: 8GiB")
    parser.add_argument("--every", type=float, default=60.0, help="seconds between checkpoints")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--only", choices=TRAININGS, help="one of the two trainings")
    parser.add_argument("--steps", type=int, help="updates in an epoch that is timed")
    parser.add_argument("--turns", type=Path, help="a file: several may compile at once, and are timed one by one")
    parser.add_argument("--alone", action="store_true", help="compile by turns as well, since XLA times kernels")
    parser.add_argument("--handed-on", action="store_true", help="XLA has its kernels: compile beside what is timed")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    os.environ["KERAS_BACKEND"] = arguments.backend
    if arguments.child:
        print("RESULT " + json.dumps(CHILDREN[arguments.child](arguments)))
        return
    result = {"what": arguments.what, "backend": arguments.backend, "jit": arguments.jit} | parent(arguments)
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    with arguments.out.open("a") as lines:
        lines.write(json.dumps(result) + "\n")
    print(json.dumps(result))


def parent(arguments: argparse.Namespace) -> dict[str, Any]:
    """Run the children that the question takes, each in a process of its own."""
    if arguments.what != "memory":
        return child(arguments.what, arguments)
    found: dict[str, Any] = {}
    for training in TRAININGS if arguments.only is None else (arguments.only,):
        peaks = {}
        for way in WAYS:
            answer = child(f"memory-{training}-{way}", arguments)
            peaks[way] = answer.pop("peak_bytes")
            found |= answer
        found[training] = {"peak_bytes": peaks}
        if all(peaks.values()):
            found[training]["ratio"] = round(peaks["fitroom"] / peaks["keras"], 4)
    return found


def child(name: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """One measurement in a process of its own."""
    command = [sys.executable, __file__, *sys.argv[1:], "--child", name]
    environment = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "2"}
    if arguments.limit and arguments.backend == "jax":
        from fitroom.units import parse_bytes
        from predict.accuracy import jax_fraction

        environment["XLA_CLIENT_MEM_FRACTION"] = jax_fraction(parse_bytes(arguments.limit))
    finished = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True)
    lines = [line for line in finished.stdout.splitlines() if line.startswith("RESULT ")]
    if not lines:
        raise SystemExit(f"{name} gave no result (exit code {finished.returncode})")
    found: dict[str, Any] = json.loads(lines[-1][7:])
    return found


def by_turns(arguments: argparse.Namespace, pairs: dict[str, tuple[Any, Any]]) -> dict[str, Any]:
    """Two ways of training by turns; each is a function that trains some steps and gives seconds a step."""
    compiling = fcntl.LOCK_EX if arguments.alone else fcntl.LOCK_SH
    with contextlib.nullcontext() if arguments.handed_on else turn(arguments.turns, compiling):
        for pair in pairs.values():
            for way in pair:
                way(brief=True)  # compiles
    with turn(arguments.turns, fcntl.LOCK_EX):
        return {name: compared(arguments, *pair) for name, pair in pairs.items()}


def compared(arguments: argparse.Namespace, one: Any, other: Any) -> dict[str, Any]:
    """Seconds a step of each, and the ratio."""
    found: dict[Any, list[float]] = {one: [], other: []}
    for number in range(2 if arguments.quick else arguments.rounds):
        for way in (one, other) if number % 2 else (other, one):
            found[way].append(way())
    seconds = [round(statistics.median(found[way]), 5) for way in (one, other)]
    return {"ratio": round(seconds[1] / seconds[0], 4), "seconds": dict(zip(WAYS, seconds, strict=True))}


def speed(arguments: argparse.Namespace) -> dict[str, Any]:
    """`model.fit` and `fitroom.fit`; then four batches accumulated by Keras and one batch in four parts."""
    import fitroom

    setting = Setting(arguments)
    model, twin, parts = setting.model(), setting.model(), setting.model(keras_accumulation=4)
    recipe = fitroom.Recipe(micro_batch=setting.micro_batch)
    size, steps = setting.micro_batch, setting.steps
    ways = {
        "plain": (setting.timed(model.fit), setting.timed(lambda *a, **k: fitroom.fit(twin, *a, **k))),
        "accumulate": (
            setting.timed(parts.fit, batch_size=size, steps=4 * steps, updates=steps),
            setting.timed(lambda *a, **k: fitroom.fit(twin, *a, recipe=recipe, **k), batch_size=4 * size),
        ),
    }
    found = by_turns(arguments, {name: ways[name] for name in TRAININGS if arguments.only in (None, name)})
    sizes = {"batch_size": setting.batch_size, "micro_batch": size, "parts": 4}
    return facts(arguments) | sizes | found


def checkpoint(arguments: argparse.Namespace) -> dict[str, Any]:
    """`fitroom.fit` without and with a run folder."""
    import fitroom

    setting = Setting(arguments)
    model, twin = setting.model(), setting.model()
    folder = tempfile.mkdtemp()
    count = iter(range(10_000))

    def kept(*positional: Any, **named: Any) -> Any:
        return fitroom.fit(twin, *positional, run_dir=f"{folder}/{next(count)}", **named)

    plain = setting.timed(lambda *a, **k: fitroom.fit(model, *a, **k), seconds=2 * arguments.every)
    both = by_turns(arguments, {"both": (plain, setting.timed(kept, seconds=2 * arguments.every))})
    return facts(arguments) | both["both"] | {"every_s": arguments.every}


def memory(arguments: argparse.Namespace, training: str, way: str) -> dict[str, Any]:
    """The allocator's peak of one way of training, in steady state where the framework can tell it apart."""
    import fitroom
    from fitroom.backends.choose import current_backend

    setting = Setting(arguments)
    model = setting.model(keras_accumulation=4 if (training, way) == ("accumulate", "keras") else None)
    batch_size = setting.batch_size
    options: dict[str, Any] = {}
    if training == "accumulate":
        batch_size = setting.micro_batch * (1 if way == "keras" else 4)
        options = {"recipe": fitroom.Recipe(micro_batch=setting.micro_batch)} if way == "fitroom" else {}
    train: Any = model.fit if way == "keras" else functools.partial(fitroom.fit, model, **options)
    backend = current_backend()
    device = backend.devices()[0]
    train(setting.data(batch_size, 8), verbose=0)
    if backend.can_reset_peak:
        backend.reset_peak(device)
        train(setting.data(batch_size, 8), verbose=0)
    return facts(arguments) | {"peak_bytes": backend.read_memory(device).peak_bytes}


def survive(arguments: argparse.Namespace) -> dict[str, Any]:
    """Twenty batches of 256 and a short one on a card that cannot hold one of them."""
    setting = Setting(arguments)
    setting.limit()
    import fitroom

    model = setting.model()
    whole, short = (256, 100) if setting.on_gpu else (64, 25)
    number = 4 if arguments.quick else 20
    seen: list[int] = []
    data = setting.data(whole, number, short=short, seen=seen)
    started = time.time()
    history = fitroom.fit(model, data, verbose=0, shuffle=False)
    events = [event for event in history.fitroom["events"] if event["kind"] == "out of memory"]
    return facts(arguments) | {
        "limit": arguments.limit,
        "batch_size": whole,
        "updates": int(model.optimizer.iterations),
        "samples": sum(seen),
        "micro_batch": history.fitroom["micro_batch"],
        "out_of_memory": len(events),
        "tried": [event["samples"] for event in events],
        "seconds_to_next_step": [event.get("seconds_to_next_step") for event in events],
        "loss": float(history.history["loss"][-1]),
        "wall_s": round(time.time() - started, 1),
        "peak_bytes": setting.peak_bytes(),
    }


class Setting:
    """The model and the data of a measurement, by what the machine has."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        self.on_gpu = _on_gpu(arguments.backend)
        self.pixels = 299 if self.on_gpu else 64
        self.batch_size, self.micro_batch = (64, 32) if self.on_gpu else (32, 8)
        self.steps = arguments.steps or (4 if arguments.quick else 12)

    def limit(self) -> None:
        """Cap the allocator of this process; on JAX the parent has done it."""
        from fitroom.backends.choose import current_backend
        from fitroom.units import parse_bytes

        current_backend().fail_at_once()  # as `fitroom run` does
        limit_bytes = parse_bytes(self.arguments.limit)
        if self.arguments.backend == "torch":
            import torch

            total_bytes = torch.cuda.get_device_properties(0).total_memory
            torch.cuda.set_per_process_memory_fraction(limit_bytes / total_bytes)
        elif self.arguments.backend == "tensorflow" and self.on_gpu:
            import tensorflow as tf

            [gpu] = tf.config.list_physical_devices("GPU")
            limited = tf.config.LogicalDeviceConfiguration(memory_limit=limit_bytes // 2**20)
            tf.config.set_logical_device_configuration(gpu, [limited])

    def model(self, keras_accumulation: int | None = None) -> Any:
        """Compiled; Xception on a GPU, a small net with BatchNormalization elsewhere."""
        import keras
        from keras import layers

        keras.config.set_dtype_policy(self.arguments.precision)
        shape = (self.pixels, self.pixels, 3)
        if self.on_gpu:
            model = keras.applications.Xception(weights=None, input_shape=shape, classes=5)
        else:
            blocks = [
                layer
                for filters in (16, 32, 64)
                for layer in (layers.Conv2D(filters, 3, activation="relu"), layers.BatchNormalization())
            ]
            head = [layers.GlobalAveragePooling2D(), layers.Dense(5, activation="softmax")]
            model = keras.Sequential([keras.Input(shape), *blocks, *head])
        jit = {} if self.arguments.jit is None else {"jit_compile": self.arguments.jit}
        optimizer = keras.optimizers.Adam(gradient_accumulation_steps=keras_accumulation)
        model.compile(optimizer, "sparse_categorical_crossentropy", **jit)
        return model

    def data(self, batch_size: int, number: int, short: int = 0, seen: list[int] | None = None) -> Any:
        """A dataset of so many batches, and a short one at the end if asked; made once, so that it costs nothing."""
        import keras
        import numpy as np

        random = np.random.default_rng(0)
        x = random.random((batch_size, self.pixels, self.pixels, 3), "float32")
        y = random.integers(0, 5, batch_size).astype("int32")

        class Batches(keras.utils.PyDataset):
            def __len__(self) -> int:
                return number + bool(short)

            def __getitem__(self, index: int) -> tuple[Any, Any]:
                size = short if index == number else batch_size
                if seen is not None:
                    seen.append(size)
                return x[:size], y[:size]

        return Batches()

    def timed(
        self,
        train: Any,
        batch_size: int | None = None,
        steps: int | None = None,
        updates: int | None = None,
        seconds: float | None = None,
    ) -> Any:
        """A function that trains an epoch and gives seconds an update, without what comes once in a `fit`."""
        import keras

        steps = steps or self.steps
        clock: dict[str, float] = {}
        per_step: list[float] = []

        def end(epoch: int, logs: dict[str, Any]) -> None:
            float(logs["loss"])  # waits for the device
            clock["end"] = time.perf_counter()

        watch = keras.callbacks.LambdaCallback(
            on_epoch_begin=lambda epoch, logs: clock.update(begin=time.perf_counter()) if epoch == 1 else None,
            on_epoch_end=end,
        )

        def run(brief: bool = False) -> float:
            # The first epoch fills the queues; the second is timed.
            epochs_steps = steps
            if brief:
                epochs_steps = steps // updates if updates else 1
            if seconds and per_step:
                epochs_steps = max(steps, int(seconds / per_step[-1]))
            data = self.data(batch_size or self.batch_size, epochs_steps)
            train(data, epochs=2, verbose=0, callbacks=[watch], shuffle=False)
            per_step.append((clock["end"] - clock["begin"]) / epochs_steps)
            return per_step[-1] * epochs_steps / (updates or epochs_steps)

        return run

    def peak_bytes(self) -> int | None:
        """The allocator's peak so far."""
        from fitroom.backends.choose import current_backend

        backend = current_backend()
        peak_bytes: int | None = backend.read_memory(backend.devices()[0]).peak_bytes
        return peak_bytes


def facts(arguments: argparse.Namespace) -> dict[str, Any]:
    """Where and with what."""
    import importlib

    import keras

    setting = Setting(arguments)
    framework = importlib.import_module(arguments.backend)
    found: dict[str, Any] = {
        "model": "Xception 299" if setting.on_gpu else "small net 64",
        "precision": arguments.precision,
        "device": "GPU" if setting.on_gpu else "CPU",
        "versions": {arguments.backend: framework.__version__, "keras": keras.__version__},
        "date": time.strftime("%Y-%m-%d"),
    }
    if setting.on_gpu:
        import pynvml

        pynvml.nvmlInit()
        found["gpu"] = pynvml.nvmlDeviceGetName(pynvml.nvmlDeviceGetHandleByIndex(0))
    return found


def _on_gpu(backend: str) -> bool:
    if backend == "torch":
        import torch

        return bool(torch.cuda.is_available())
    if backend == "jax":
        import jax

        return bool(jax.default_backend() == "gpu")
    import tensorflow as tf

    return bool(tf.config.list_physical_devices("GPU"))


CHILDREN: dict[str, Any] = {"speed": speed, "checkpoint": checkpoint, "survive": survive} | {
    f"memory-{training}-{way}": functools.partial(memory, training=training, way=way)
    for training in TRAININGS
    for way in WAYS
}


if __name__ == "__main__":
    main()
