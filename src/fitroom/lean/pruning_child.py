"""A child process of `fitroom compress`: prunes a model file, or measures how fast one is."""

import time
from pathlib import Path
from typing import Any

import numpy as np

from fitroom.errors import InputError
from fitroom.files.durable import save_model_atomic
from fitroom.keras_model.loading.source import ModelSource, load_model
from fitroom.lean.child_process import answer_job
from fitroom.lean.pruning import prune
from fitroom.units import format_bytes

MODULE = "fitroom.lean.pruning_child"
_REPEATS, _WARM_UP = 20, 3
_LARGEST = 0.98


def work(job: dict[str, Any]) -> dict[str, Any]:
    """Prune, or measure, as the job says."""
    model = load_model(ModelSource(text=job["model"], unsafe=job["unsafe"], values=True))
    if job["task"] == "measure":
        return {"parameters": model.count_params(), "latency_seconds": measure_latency(model)}
    sparsity = job["sparsity"]
    if sparsity is None:
        sparsity = find_sparsity(model, Path(job["model"]), job["target_bytes"])
    pruned = prune(model, sparsity)
    save_model_atomic(pruned, Path(job["to"]))
    return {"sparsity": sparsity, "parameters": pruned.count_params()}


def find_sparsity(model: Any, file: Path, target_bytes: int) -> float:
    """The least sparsity at which the file of the pruned model is no larger than asked."""
    from fitroom.lean.structured import Sizes

    sizes = Sizes.of(model)
    itemsize = 4
    around = max(0, file.stat().st_size - itemsize * model.count_params())

    def size_at(sparsity: float) -> int:
        return int(around + itemsize * sizes.parameters(sparsity))

    if size_at(_LARGEST) > target_bytes:
        raise InputError(
            f"Pruned by {100 * _LARGEST:.0f} % the file still takes {format_bytes(size_at(_LARGEST))}. Received: "
            f"--target-size of {format_bytes(target_bytes)}.",
            hint="give a larger size, or a smaller model; `fitroom export --int8` makes a file about 4 times smaller",
        )
    low, high = 0.0, _LARGEST
    while high - low > 0.005:
        middle = (low + high) / 2
        low, high = (low, middle) if size_at(middle) <= target_bytes else (middle, high)
    return round(high, 4)


def measure_latency(model: Any) -> float:
    """The median time to predict one image, in seconds."""
    image = np.zeros((1, *model.inputs[0].shape[1:]), "float32")
    times = []
    for number in range(_WARM_UP + _REPEATS):
        started = time.perf_counter()
        model.predict_on_batch(image)
        if number >= _WARM_UP:
            times.append(time.perf_counter() - started)
    return float(np.median(times))


if __name__ == "__main__":
    answer_job(work)
