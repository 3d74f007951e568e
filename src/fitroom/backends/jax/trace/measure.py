"""The memory of a step measured on the card in this machine, in processes of its own."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from fitroom.backends.jax.trace.step import JaxStep
from fitroom.backends.xla.dump import read_dump
from fitroom.backends.xla.timeline import timeline_of
from fitroom.cards.catalogue import Card
from fitroom.cards.nvml import LiveGpu, find_live_gpu
from fitroom.cards.overhead import visible_bytes
from fitroom.errors import BackendError, InputError
from fitroom.memory.timeline import Timeline
from fitroom.units import format_bytes


def measure_timeline(step: JaxStep, card: Card, limit_bytes: int) -> Timeline:
    """The step's memory as compiled for the live card, its peak as the allocator counted it."""
    gpu = _live_gpu(card, limit_bytes)
    with tempfile.TemporaryDirectory(prefix="fitroom-") as folder:
        step_file, dump_folder, cache_folder = (Path(folder, name) for name in ("step", "dump", "cache"))
        step_file.write_bytes(step.export().serialize())
        dump_folder.mkdir()
        environment = _environment(cache_folder, limit_bytes / visible_bytes(gpu.memory_bytes))
        _run([step_file, dump_folder], environment)
        peak_bytes = _run([step_file], environment)
        timeline = timeline_of(read_dump(dump_folder), step.arguments, step.scope_reader)
    return timeline.with_peak(peak_bytes)


def _live_gpu(card: Card, limit_bytes: int) -> LiveGpu:
    gpu = find_live_gpu(card)
    if limit_bytes > gpu.free_bytes:
        raise InputError(
            f"{gpu.name} has {format_bytes(gpu.free_bytes)} free, less than the limit of "
            f"{format_bytes(limit_bytes)} to measure under.",
            hint="end what else uses the card (a notebook that imported JAX holds three quarters), or give a --limit",
        )
    return gpu


def _environment(cache_folder: Path, fraction: float) -> dict[str, str]:
    inherited = {
        key: value
        for key, value in os.environ.items()
        # The older name beside the newer one keeps the CUDA plugin from starting.
        if key not in ("JAX_PLATFORMS", "XLA_PYTHON_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_PREALLOCATE")
    }
    return inherited | {
        "XLA_CLIENT_MEM_FRACTION": f"{fraction:.6f}",
        "JAX_COMPILATION_CACHE_DIR": str(cache_folder),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }


def _run(arguments: list[Path], environment: dict[str, str]) -> int:
    command = [sys.executable, "-m", "fitroom.backends.jax.trace.measure_child", *map(str, arguments)]
    finished = subprocess.run(command, env=environment, capture_output=True, text=True, errors="replace")
    if finished.returncode == 0:
        return int(finished.stdout.split()[-1])
    said = finished.stderr.strip().splitlines()[-1:] or ["no message"]
    if "RESOURCE_EXHAUSTED" in finished.stderr:
        raise BackendError(
            "The step ran out of memory on the card.", hint="a smaller --batch-size; without --measure it is predicted"
        )
    raise BackendError(
        f"The step could not be run on the card: {said[0][:300]}", hint="does `jax.devices()` show the GPU?"
    )
