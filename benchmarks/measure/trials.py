"""Three small trainings side by side on one card, admitted by their predicted bytes, and the same one after the other.

    python benchmarks/measure/trials.py --backend jax --out trials.jsonl     # appends a line

Each trial trains a small convolutional net for some epochs and returns when it ran and what the allocator had in use.
A fourth is predicted to need more than the card has, and must not start.
"""

import argparse
import datetime
import importlib.metadata
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parents[1] / "results" / "trials.jsonl"
SETTINGS = [{"filters": filters, "batch_size": 64} for filters in (16, 24, 32)]


def build(filters: int) -> Any:
    """A net of three convolutions, compiled."""
    import keras
    from keras import layers

    pictures = keras.Input((64, 64, 3))
    x = pictures
    for number in range(3):
        x = layers.Conv2D(filters * 2**number, 3, strides=2, activation="relu")(x)
    model = keras.Model(pictures, layers.Dense(10)(layers.GlobalAveragePooling2D()(x)))
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


def train(filters: int, batch_size: int) -> dict[str, Any]:
    """Train on random images; when it began and ended, and the last loss."""
    import numpy as np

    began = time.time()
    draw = np.random.default_rng(0)
    x = draw.random((64 * batch_size, 64, 64, 3), dtype="float32")
    history = build(filters).fit(x, draw.integers(0, 10, len(x)), batch_size=batch_size, epochs=10, verbose=0)
    return {"began": began, "ended": time.time(), "loss": history.history["loss"][-1]}


def predict(settings: dict[str, Any]) -> Any:
    """The estimate of a trial; the one that cannot fit is said to need a pebibyte."""
    import fitroom

    if settings["filters"] > 1000:
        return 2**50
    return fitroom.estimate(build(settings["filters"]), settings["batch_size"])


def main() -> None:
    """Measure and append a line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", choices=("jax", "tensorflow", "torch"), default="jax")
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    os.environ["KERAS_BACKEND"] = arguments.backend

    import fitroom
    from fitroom.cards.nvml import live_gpus

    found: dict[str, Any] = {"backend": arguments.backend, "device": [gpu.name for gpu in live_gpus()]}
    found |= {"date": str(datetime.date.today()), "keras": importlib.metadata.version("keras")}
    with tempfile.TemporaryDirectory() as folder:
        ways: dict[str, dict[str, Any]] = {"side by side": {"device_bytes": predict}, "one by one": {}}
        for name, options in ways.items():
            settings = [*SETTINGS, *([{"filters": 4096, "batch_size": 64}] if options else [])]
            started = time.monotonic()
            table = fitroom.trials(train, settings, Path(folder, name), time_limit=300, **options)
            spans = [(row.result["began"], row.result["ended"]) for row in table.finished]
            found[name] = {
                "seconds": round(time.monotonic() - started, 1),
                "states": [row.state for row in table],
                "most_at_once": max(sum(a <= at < b for a, b in spans) for at, _ in spans) if spans else 0,
                "device_bytes": [row.device_bytes for row in table],
                "peak_bytes": [row.peak_bytes for row in table],
                "errors": [row.error for row in table.failed],
            }
    with arguments.out.open("a") as lines:
        lines.write(json.dumps(found) + "\n")
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
