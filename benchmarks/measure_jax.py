"""Measure cases on a real card with JAX, several processes side by side (allocator counters are per process).

    python benchmarks/measure_jax.py --out FOLDER [--only TEXT] [--workers 4] [--share 0.2]

Each case runs twice: the first process compiles and times kernels (autotuning, whose scratch would show in the peak),
the second takes the executable from the compilation cache, so that its peak is that of a steady step.
One line of JSON a case goes to FOLDER/jax.jsonl; cases that are there are not run again.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from cases import CASES, Case, build

STEPS = 6


def main() -> None:
    """Run the cases that have no result yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", default="")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--share", type=float, default=0.22, help="part of the card each process may take")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.case:
        print("RESULT " + json.dumps(measure(Case(**json.loads(arguments.case)))))
        return
    results = arguments.out / "jax.jsonl"
    done = {json.loads(line)["name"] for line in results.read_text().splitlines()} if results.exists() else set()
    todo = [case for case in CASES if case.backend == "jax" and case.name not in done and arguments.only in case.name]
    with ThreadPoolExecutor(arguments.workers) as pool, results.open("a") as file:
        for result in pool.map(lambda case: run_twice(case, arguments.share), todo):
            file.write(json.dumps(result) + "\n")
            file.flush()
            print(result["name"], result.get("peak_bytes"), result.get("error", "")[-300:], flush=True)


def run_twice(case: Case, share: float) -> dict[str, object]:
    """Compile in one process, measure in another."""
    with tempfile.TemporaryDirectory() as cache:
        environment = os.environ | {
            "KERAS_BACKEND": "jax",
            "XLA_CLIENT_MEM_FRACTION": str(share),
            "JAX_COMPILATION_CACHE_DIR": cache,
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
            "TF_CPP_MIN_LOG_LEVEL": "2",
        }
        command = [sys.executable, __file__, "--out", cache, "--case", json.dumps(case.to_dict())]
        seconds = []
        for _ in range(2):
            start = time.time()
            finished = subprocess.run(command, env=environment, capture_output=True, text=True)
            seconds.append(round(time.time() - start, 1))
            lines = [line for line in finished.stdout.splitlines() if line.startswith("RESULT ")]
            if not lines:
                return {"name": case.name, **case.to_dict(), "error": finished.stderr[-3000:], "seconds": seconds}
            if len(seconds) == 1:
                first = json.loads(lines[0][7:])
        result = json.loads(lines[0][7:])
        return {**result, "first_process_peak_bytes": first["peak_bytes"], "seconds": seconds}


def measure(case: Case) -> dict[str, object]:
    """Train a few steps in this process and read the allocator."""
    import jax
    import keras
    import numpy as np
    import pynvml

    model = build(case)
    shape = (case.batch_size, case.image_size, case.image_size, 3)
    if case.feed == "fit":
        x = np.zeros((case.batch_size * STEPS, *shape[1:]), "float32")
        model.fit(x, np.zeros(len(x), "int32"), batch_size=case.batch_size, epochs=2, verbose=0)
        analysis = None
    else:
        analysis = resident_steps(model, shape)
    device = jax.devices()[0]
    stats = device.memory_stats()
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    mine = [p.usedGpuMemory for p in pynvml.nvmlDeviceGetComputeRunningProcesses(handle) if p.pid == os.getpid()]
    return {
        "name": case.name,
        **case.to_dict(),
        "peak_bytes": stats["peak_bytes_in_use"],
        "stats": stats,
        "analysis": analysis,
        "process_bytes": mine[0] if mine else None,
        "gpu": device.device_kind,
        "versions": {"jax": jax.__version__, "keras": keras.__version__, "driver": pynvml.nvmlSystemGetDriverVersion()},
        "date": time.strftime("%Y-%m-%d"),
    }


def resident_steps(model: object, shape: tuple[int, ...]) -> dict[str, int]:
    """The real train step, as Keras jits it, on one batch that stays on the card."""
    import jax
    import jax.numpy as jnp

    model.optimizer.build(model.trainable_variables)
    x, y = jnp.zeros(shape, "float32"), jnp.zeros(shape[0], "int32")
    model._symbolic_build(data_batch=(x, y))
    state = model._get_jax_state(
        trainable_variables=True,
        non_trainable_variables=True,
        optimizer_variables=True,
        metrics_variables=True,
        purge_model_variables=True,
    )
    step = jax.jit(model.train_step, donate_argnums=0)
    compiled = step.lower(state, (x, y)).compile()
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


if __name__ == "__main__":
    main()
