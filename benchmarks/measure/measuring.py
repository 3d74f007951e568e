"""Measure one case in this process, on the card that is here: the allocator's peak in steady training.

    python benchmarks/measure/measuring.py CASE_AS_JSON [--limit BYTES] [--records FILE]

The last line of stdout is the result. `--limit` caps the allocator. `--records` also writes what each operation of one
steady step took (PyTorch, TensorFlow), for those who look for rules.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
from harness.case_models import STEPS
from harness.cases import Case

RECORDED_STEP = 2


def main() -> None:
    """Measure the case and print the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("case")
    parser.add_argument("--limit", type=int)
    parser.add_argument("--records", type=Path)
    arguments = parser.parse_args()
    case = Case(**json.loads(arguments.case))
    os.environ["KERAS_BACKEND"] = case.backend
    measure: Callable[..., dict[str, Any]] = {"jax": _jax, "torch": _torch, "tensorflow": _tensorflow}[case.backend]
    found = measure(case, arguments.limit, arguments.records)
    result = {"name": case.name, **case.to_dict(), "limit_bytes": arguments.limit, **found, **_card()}
    print("RESULT " + json.dumps(result | {"date": time.strftime("%Y-%m-%d")}))


def _torch(case: Case, limit_bytes: int | None, records: Path | None) -> dict[str, Any]:
    import keras
    import torch

    if limit_bytes:
        total_bytes = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(limit_bytes / total_bytes)
    _fit(case, reset_peak=torch.cuda.reset_peak_memory_stats, records=records)
    return {
        "peak_bytes": torch.cuda.max_memory_allocated(),
        "reserved_bytes": torch.cuda.max_memory_reserved(),
        "resting_bytes": torch.cuda.memory_allocated(),
        "versions": {"torch": torch.__version__, "cuda": torch.version.cuda, "keras": keras.__version__},
    }


def _tensorflow(case: Case, limit_bytes: int | None, records: Path | None) -> dict[str, Any]:
    import keras
    import tensorflow as tf

    [gpu] = tf.config.list_physical_devices("GPU")
    if limit_bytes:
        limit_mib = -(-limit_bytes // 2**20)
        tf.config.set_logical_device_configuration(gpu, [tf.config.LogicalDeviceConfiguration(memory_limit=limit_mib)])
    _fit(case, reset_peak=lambda: tf.config.experimental.reset_memory_stats("GPU:0"), records=records)
    memory = tf.config.experimental.get_memory_info("GPU:0")
    build = tf.sysconfig.get_build_info()
    return {
        "peak_bytes": memory["peak"],
        "resting_bytes": memory["current"],
        "versions": {
            "tensorflow": tf.__version__,
            "cuda": build.get("cuda_version"),
            "cudnn": build.get("cudnn_version"),
            "keras": keras.__version__,
        },
    }


def _jax(case: Case, limit_bytes: int | None, records: Path | None) -> dict[str, Any]:
    """The limit is the process's, by XLA_CLIENT_MEM_FRACTION, which `accuracy.py` sets."""
    import jax
    import keras

    analysis = None
    if case.feed == "fit":
        _fit(case, reset_peak=lambda: None, records=None)
    else:
        analysis = _resident_steps(case)
    stats = jax.devices()[0].memory_stats()
    return {
        "peak_bytes": stats["peak_bytes_in_use"],
        "limit_bytes": stats["bytes_limit"],
        "stats": stats,
        "analysis": analysis,
        "versions": {"jax": jax.__version__, "keras": keras.__version__},
    }


def _fit(case: Case, *, reset_peak: Callable[[], None], records: Path | None) -> None:
    """Train two epochs; the peak counts from the second on, when all that is done once is done."""
    import keras

    from harness.case_models import batches, build, samples
    from measure.records import recorder

    model = build(case)
    if case.feed == "batches":
        data = {"x": batches(case, STEPS)}
    else:
        x, y = samples(case, STEPS * case.batch_size)
        data = {"x": x, "y": y, "batch_size": case.batch_size}
    if records:
        with recorder(case, RECORDED_STEP, records) as recording:
            model.fit(**data, epochs=2, verbose=0, callbacks=[recording])
    steady = keras.callbacks.LambdaCallback(on_epoch_begin=lambda epoch, logs: reset_peak() if epoch == 1 else None)
    history = model.fit(**data, epochs=2, verbose=0, callbacks=[steady]).history
    # JAX runs ahead, and a step that ran out of memory says so only to those who read its result.
    for loss in history["loss"]:
        float(loss)


def _resident_steps(case: Case) -> dict[str, int]:
    """The real train step, as Keras jits it on JAX, on one batch that stays on the card."""
    import jax
    import jax.numpy as jnp

    from harness.case_models import build, samples

    model = build(case)
    model.optimizer.build(model.trainable_variables)
    x, y = map(jnp.asarray, samples(case, case.batch_size))
    model._symbolic_build(data_batch=(x, y))
    state = model._get_jax_state(
        trainable_variables=True,
        non_trainable_variables=True,
        optimizer_variables=True,
        metrics_variables=True,
        purge_model_variables=True,
    )
    compiled = jax.jit(model.train_step, donate_argnums=0).lower(state, (x, y)).compile()
    for _ in range(STEPS):
        logs, state = compiled(state, (x, y))
    jax.block_until_ready(logs)
    found = compiled.memory_analysis()
    return {
        "temp_bytes": found.temp_size_in_bytes,
        "argument_bytes": found.argument_size_in_bytes,
        "output_bytes": found.output_size_in_bytes,
        "alias_bytes": found.alias_size_in_bytes,
    }


def _card() -> dict[str, Any]:
    """The card, and what the driver says this process has of it: allocator, context and libraries together."""
    import pynvml

    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    mine = [p.usedGpuMemory for p in pynvml.nvmlDeviceGetComputeRunningProcesses(handle) if p.pid == os.getpid()]
    return {
        "gpu": pynvml.nvmlDeviceGetName(handle),
        "driver": pynvml.nvmlSystemGetDriverVersion(),
        "process_bytes": mine[0] if mine else None,
    }


if __name__ == "__main__":
    main()
