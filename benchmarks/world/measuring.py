"""Measure configurations of the corpus in this process, on the card that is here; `measure.py` starts it.

    echo bert | python benchmarks/world/measuring.py torch [--limit BYTES]

Reads names from stdin, one a line, and writes a line with a result for each. `--limit` caps the allocator. It trains
two epochs of plain `fit` on batches of a `keras.utils.PyDataset`; where the allocator's peak can be reset, it counts
from the second epoch on. `--resident`: the batch is on the card from the start, so that JAX's `fit` copies no further
ones ahead; `peak_bytes` of an estimate has one, and `required_bytes` those that `fit` copies too. To try this out
without a card: TensorFlow counts with TF_CPU_ALLOCATOR_USE_BFC=true, the others do not count.
"""

import argparse
import gc
import json
import os
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
from predict.accuracy import what_went_wrong
from world.corpus import MODES, Configuration, by_name

STEPS = 3


def main() -> None:
    """Measure what stdin names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mode", choices=MODES)
    parser.add_argument("--limit", type=int)
    parser.add_argument("--resident", action="store_true", help="one batch, on the card from the start")
    arguments = parser.parse_args()
    os.environ["KERAS_BACKEND"] = arguments.mode.partition("-")[0]
    counter = make_counter(arguments.mode, arguments.limit)
    for line in sys.stdin:
        found = measured(by_name(line.strip()), arguments.mode, counter, is_resident=arguments.resident)
        print("RESULT " + json.dumps(found | {"left_bytes": _left_bytes(counter)}), flush=True)


def make_counter(mode: str, limit_bytes: int | None) -> Any:
    """What reads the allocator of a mode in this process, and caps it; on JAX the environment has to do that."""
    kinds: dict[str, Any] = {"jax": _Jax, "torch": _Torch, "tensorflow": _TensorFlow}
    return kinds[mode.partition("-")[0]](limit_bytes)


def measured(configuration: Configuration, mode: str, counter: Any, *, is_resident: bool = False) -> dict[str, Any]:
    """The peak in steady training, or why there is none."""
    import keras

    try:
        model = configuration.compile(configuration.load(values=True))
        if mode.startswith("tensorflow"):
            model.jit_compile = mode == "tensorflow-jit"
        steady = keras.callbacks.LambdaCallback(on_epoch_begin=lambda epoch, logs: counter.reset() if epoch else None)
        # Not the fit of KerasHub's tasks, which prepare texts and images: these are prepared.
        history = keras.Model.fit(
            model,
            make_batches(configuration, model, STEPS, is_resident=is_resident),
            epochs=2,
            verbose=0,
            callbacks=[steady],
        )
        # JAX runs ahead, and a step that ran out of memory says so only to those who read its result.
        if mode == "tensorflow-jit" and not model.jit_compile:
            return {"crashed": "Keras runs this model without jit"}
        losses = [float(loss) for loss in history.history["loss"]]
        return {**counter.counted(), "losses": losses, "jit": bool(model.jit_compile), "versions": _versions()}
    except Exception as error:
        return {"crashed": f"{type(error).__name__}: {_said(error)}"}


def _said(error: Exception) -> str:
    """The lines that tell of memory; of our own errors all but the hint, which is their last line."""
    text = str(error).partition("\nhint: ")[0]
    return what_went_wrong(text) or "no message"


def _left_bytes(counter: Any) -> int:
    """What is in use once the model is gone: more than a few bytes would be in the next one's peak."""
    import keras

    keras.utils.clear_session()
    for _ in range(2):
        gc.collect()
    return counter.in_use_bytes()


def make_batches(
    configuration: Configuration, model: Any, steps: int, size: int | None = None, *, is_resident: bool = False
) -> Any:
    """The same batch again and again, for an epoch of some steps; with `size`, its first samples alone.

    `is_resident`: as an array on the device, which is not copied again.
    """
    import keras

    from world.train import batch

    x, y = keras.tree.map_structure(lambda values: values[:size], batch(configuration, model, configuration.batch_size))
    if is_resident:
        x, y = keras.tree.map_structure(keras.ops.convert_to_tensor, (x, y))

    class Batches(keras.utils.PyDataset):
        def __len__(self) -> int:
            return steps

        def __getitem__(self, index: int) -> tuple[Any, Any]:
            return x, y

    return Batches()


class _Torch:
    def __init__(self, limit_bytes: int | None) -> None:
        import torch

        self._torch, self._has_card = torch, torch.cuda.is_available()
        if limit_bytes and self._has_card:
            total_bytes = torch.cuda.get_device_properties(0).total_memory
            torch.cuda.set_per_process_memory_fraction(limit_bytes / total_bytes)

    def reset(self) -> None:
        if self._has_card:
            self._torch.cuda.reset_peak_memory_stats()

    def counted(self) -> dict[str, Any]:
        if not self._has_card:
            return {"peak_bytes": None}
        memory = self._torch.cuda
        return {"peak_bytes": memory.max_memory_allocated(), "reserved_bytes": memory.max_memory_reserved()}

    def in_use_bytes(self) -> int:
        if not self._has_card:
            return 0
        # cuBLAS's workspaces live as long as the process: each model shall take its own.
        self._torch._C._cuda_clearCublasWorkspaces()
        self._torch.cuda.empty_cache()
        return self._torch.cuda.memory_allocated()


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

    def counted(self) -> dict[str, Any]:
        return {"peak_bytes": self._memory.get_memory_info(self._device)["peak"]}

    def in_use_bytes(self) -> int:
        return self._memory.get_memory_info(self._device)["current"]


class _Jax:
    """Its peak cannot be reset: each configuration has processes of its own, and the limit is the environment's.

    `num_compiled` is how many programs were not in the cache of compiled ones: 0 where the peak is that of training.
    """

    def __init__(self, limit_bytes: int | None) -> None:
        import jax

        self._device = jax.devices()[0]
        self._num_compiled = 0
        jax.monitoring.register_event_listener(self._note)

    def _note(self, event: str, **_: Any) -> None:
        # What is found in the cache of compiled programs is loaded; all else is compiled, and its kernels are tried.
        self._num_compiled += event == "/jax/compilation_cache/cache_misses"

    def reset(self) -> None:
        pass

    def counted(self) -> dict[str, Any]:
        stats = self._device.memory_stats()
        compiled = {"num_compiled": self._num_compiled}
        if stats is None:
            return compiled | {"peak_bytes": None}
        return compiled | {"peak_bytes": stats["peak_bytes_in_use"], "allocator_limit_bytes": stats["bytes_limit"]}

    def in_use_bytes(self) -> int:
        return (self._device.memory_stats() or {"bytes_in_use": 0})["bytes_in_use"]


def _versions() -> dict[str, str]:
    names = ("keras", "keras_hub", "jax", "tensorflow", "torch")
    return {name: sys.modules[name].__version__ for name in names if name in sys.modules}


if __name__ == "__main__":
    main()
