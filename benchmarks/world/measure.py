"""Measure the corpus on a card: the allocator's peak in steady training, and whether it runs at `required_bytes`.

    python benchmarks/world/measure.py torch --out FOLDER            # peaks, many in one process (JAX: one each)
    python benchmarks/world/measure.py torch --cap --out FOLDER      # under a cap of required_bytes, one process each
    python benchmarks/world/measure.py jax --all --out FOLDER        # all configurations, not one of each family

Adds lines to FOLDER/world_measured.jsonl or world_capped.jsonl; what has a line there or in results/ is not run again,
so visits add up. `harness/visit.py benchmarks/world/visit.json` is the first visit. Batches come one at a time from a
`keras.utils.PyDataset`. With TF_CPU_ALLOCATOR_USE_BFC=true TensorFlow counts without a card as well, to try this out.
"""

import argparse
import gc
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
from predict.accuracy import jax_fraction, what_went_wrong
from world.corpus import CONFIGURATIONS, FIRST, MODES, Configuration, by_name
from world.estimates import RESULT as PREDICTED
from world.estimates import read_lines, write_line

RESULTS = Path(__file__).parents[1] / "results"
STEPS = 3
SECONDS = 240


def main() -> None:
    """Measure, or train under caps, what has no line yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mode", choices=MODES)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--cap", action="store_true")
    parser.add_argument("--one", help="this configuration, in this process")
    parser.add_argument("--limit", type=int)
    arguments = parser.parse_args()
    os.environ |= {"KERAS_BACKEND": arguments.mode.partition("-")[0], "TF_CPP_MIN_LOG_LEVEL": "2"}
    if arguments.one:
        print("RESULT " + json.dumps(_measured(by_name(arguments.one), arguments.mode, arguments.limit)))
        return
    name = "world_capped.jsonl" if arguments.cap else "world_measured.jsonl"
    arguments.out.mkdir(parents=True, exist_ok=True)
    lines = [*read_lines(RESULTS / name), *read_lines(arguments.out / name)]
    done = {(line["name"], line["mode"]) for line in lines}
    required = {(line["name"], line["mode"]): line.get("required_bytes") for line in read_lines(PREDICTED)}
    for each in CONFIGURATIONS if arguments.all else FIRST:
        if (each.name, arguments.mode) in done or (arguments.cap and not required.get((each.name, arguments.mode))):
            continue
        limit = required[each.name, arguments.mode] if arguments.cap else None
        alone = arguments.cap or arguments.mode == "jax"
        found = _in_child(each, arguments.mode, limit) if alone else _measured(each, arguments.mode, None)
        line = {"name": each.name, "mode": arguments.mode, "family": each.family, "half": each.half}
        write_line(arguments.out / name, line | {"limit_bytes": limit, **found, "date": time.strftime("%Y-%m-%d")})


def _in_child(configuration: Configuration, mode: str, limit_bytes: int | None) -> dict[str, Any]:
    """In a process of its own; on JAX in two, of which the first compiles and times kernels."""
    command = [sys.executable, __file__, mode, "--out", "/", "--one", configuration.name]
    environment = dict(os.environ)
    if limit_bytes:
        command += ["--limit", str(limit_bytes)]
        if mode == "jax":
            environment["XLA_CLIENT_MEM_FRACTION"] = jax_fraction(limit_bytes)
    try:
        with tempfile.TemporaryDirectory() as cache:
            if mode == "jax" and not limit_bytes:
                environment |= {
                    "JAX_COMPILATION_CACHE_DIR": cache,
                    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
                    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
                }
                subprocess.run(command, env=environment, capture_output=True, timeout=SECONDS)
            ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return {"crashed": f"longer than {SECONDS} s"}
    results = [text for text in ended.stdout.splitlines() if text.startswith("RESULT ")]
    return json.loads(results[-1][7:]) if results else {"crashed": what_went_wrong(ended.stderr[-6000:])}


def _measured(configuration: Configuration, mode: str, limit_bytes: int | None) -> dict[str, Any]:
    """Two epochs of plain `fit`; the peak counts from the second on."""
    import keras

    counter: Any = {"jax": _Jax, "torch": _Torch, "tensorflow": _TensorFlow}[mode.partition("-")[0]](limit_bytes)
    keras.utils.clear_session()
    gc.collect()
    try:
        model = configuration.compile(configuration.load(values=True))
        if mode.startswith("tensorflow"):
            model.jit_compile = mode == "tensorflow-jit"
        counts = keras.callbacks.LambdaCallback(on_epoch_begin=lambda epoch, logs: counter.reset() if epoch else None)
        history = keras.Model.fit(model, _batches(configuration, model), epochs=2, verbose=0, callbacks=[counts])
        float(history.history["loss"][-1])
        return {"peak_bytes": counter.peak_bytes(), "versions": _versions()}
    except Exception as error:
        return {"crashed": f"{type(error).__name__}: {what_went_wrong(str(error))}"}


def _batches(configuration: Configuration, model: Any) -> Any:
    import keras

    from world.train import batch

    x, y = batch(configuration, model, configuration.batch_size)

    class Batches(keras.utils.PyDataset):
        def __len__(self) -> int:
            return STEPS

        def __getitem__(self, index: int) -> tuple[Any, Any]:
            return x, y

    return Batches()


class _Torch:
    def __init__(self, limit_bytes: int | None) -> None:
        import torch

        self._cuda = torch.cuda
        torch.cuda.empty_cache()
        if limit_bytes:
            total_bytes = torch.cuda.get_device_properties(0).total_memory
            torch.cuda.set_per_process_memory_fraction(limit_bytes / total_bytes)

    def reset(self) -> None:
        self._cuda.reset_peak_memory_stats()

    def peak_bytes(self) -> int:
        return int(self._cuda.max_memory_allocated())


class _TensorFlow:
    def __init__(self, limit_bytes: int | None) -> None:
        import tensorflow as tf

        cards = tf.config.list_physical_devices("GPU")
        self._device, self._memory = ("GPU:0" if cards else "CPU:0"), tf.config.experimental
        if limit_bytes and cards:
            limited = tf.config.LogicalDeviceConfiguration(memory_limit=-(-limit_bytes // 2**20))
            tf.config.set_logical_device_configuration(cards[0], [limited])

    def reset(self) -> None:
        self._memory.reset_memory_stats(self._device)

    def peak_bytes(self) -> int:
        return int(self._memory.get_memory_info(self._device)["peak"])


class _Jax:
    """Its peak cannot be reset: each configuration has a process of its own, and the limit is the environment's."""

    def __init__(self, limit_bytes: int | None) -> None:
        import jax

        self._device = jax.devices()[0]

    def reset(self) -> None:
        pass

    def peak_bytes(self) -> int:
        return int(self._device.memory_stats()["peak_bytes_in_use"])


def _versions() -> dict[str, str]:
    import importlib.metadata

    found = {}
    for name in ("keras", "keras-hub", "jax", "tensorflow", "torch"):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


if __name__ == "__main__":
    main()
