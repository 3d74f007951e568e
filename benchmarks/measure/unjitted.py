"""What `fitroom.fit` costs on JAX beside Keras's own `fit` for models that Keras runs without jit.

    python benchmarks/measure/unjitted.py                 # appends to results/unjitted.jsonl (`--out` says where else)
    python benchmarks/measure/unjitted.py --quick         # short, to see that it runs

Two models of one kind, a small vision transformer with augmentation inside. Keras jits neither: `RandomRotation` and
`RandomZoom` bar it. In "compilable" there are only such layers, which JAX can compile; `RandomCrop` of "eager" it
cannot. "whole" is one batch beside one batch; "parts" are four micro-batches an update beside Keras's own accumulation
of four batches. Times are taken by turns in one process: seconds an update by the clock, and by the CPU, which other
processes on the machine disturb less.
"""

import argparse
import datetime
import importlib.metadata
import json
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["KERAS_BACKEND"] = "jax"
RESULTS = Path(__file__).parents[1] / "results" / "unjitted.jsonl"
SIZE, MICRO_BATCH, PARTS = 48, 8, 4
Timed = Callable[[], tuple[float, float]]


def main() -> None:
    """Measure both models and append a line for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--updates", type=int, default=4, help="in a training that is timed")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--quick", action="store_true")
    arguments = parser.parse_args()
    rounds, updates = (1, 1) if arguments.quick else (arguments.rounds, arguments.updates)
    for kind in ("compilable", "eager"):
        found = (
            {"model": kind}
            | facts()
            | {name: by_turns(plain, ours, rounds) for name, (plain, ours) in trainings(kind, updates)}
        )
        with arguments.out.open("a") as lines:
            lines.write(json.dumps(found) + "\n")
        print(json.dumps(found))


def facts() -> dict[str, Any]:
    """Where it was measured."""
    import jax

    versions = {name: importlib.metadata.version(name) for name in ("keras", "jax")}
    sizes = {"batch_size": PARTS * MICRO_BATCH, "micro_batch": MICRO_BATCH, "parts": PARTS}
    return sizes | {"device": jax.default_backend(), "versions": versions, "date": str(datetime.date.today())}


def trainings(kind: str, updates: int) -> Any:
    """By name: Keras's way and ours."""
    import fitroom

    ours = make_model(kind)
    recipe = fitroom.Recipe(micro_batch=MICRO_BATCH)
    batch = PARTS * MICRO_BATCH
    yield (
        "whole",
        (
            timed(make_model(kind).fit, batch, updates, updates),
            timed(lambda *a, **k: fitroom.fit(ours, *a, **k), batch, updates, updates),
        ),
    )
    yield (
        "parts",
        (
            timed(make_model(kind, accumulation=PARTS).fit, MICRO_BATCH, PARTS * updates, updates),
            timed(lambda *a, **k: fitroom.fit(ours, *a, recipe=recipe, **k), batch, updates, updates),
        ),
    )


def make_model(kind: str, accumulation: int | None = None) -> Any:
    """A vision transformer of two blocks."""
    import keras
    from keras import layers

    keras.utils.set_random_seed(0)
    pictures = keras.Input((SIZE, SIZE, 3))
    x = layers.RandomZoom(0.1)(layers.RandomRotation(0.05)(layers.RandomFlip("horizontal")(pictures)))
    x = layers.RandomCrop(SIZE - 8, SIZE - 8)(x) if kind == "eager" else layers.CenterCrop(SIZE - 8, SIZE - 8)(x)
    x = layers.Reshape((-1, 48))(layers.Conv2D(48, 4, strides=4)(x))
    for _ in range(2):
        y = layers.LayerNormalization()(x)
        x = x + layers.MultiHeadAttention(3, 16)(y, y)
        y = layers.LayerNormalization()(x)
        x = x + layers.Dense(48)(layers.Dense(96, activation="gelu")(y))
    outputs = layers.Dense(10, activation="softmax")(layers.GlobalAveragePooling1D()(x))
    model = keras.Model(pictures, outputs)
    optimizer = keras.optimizers.Adam(gradient_accumulation_steps=accumulation)
    model.compile(optimizer, "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def timed(fit: Callable[..., Any], batch_size: int, steps: int, updates: int) -> Timed:
    """Trains some updates and gives the seconds of one, by the clock and by the CPU."""
    import numpy as np

    draw = np.random.default_rng(0)
    x = draw.random((steps * batch_size, SIZE, SIZE, 3), dtype="float32")
    y = draw.integers(0, 10, len(x))

    def train() -> tuple[float, float]:
        clock, cpu = time.perf_counter(), time.process_time()
        fit(x, y, batch_size=batch_size, shuffle=False, verbose=0)
        return (time.perf_counter() - clock) / updates, (time.process_time() - cpu) / updates

    return train


def by_turns(keras_way: Timed, fitroom_way: Timed, rounds: int) -> dict[str, Any]:
    """The median of some turns each, after one that compiles."""
    ways = (keras_way, fitroom_way)
    first = [way()[0] for way in ways]
    turns = [[way() for way in ways] for _ in range(rounds)]
    seconds, cpu_seconds = (
        [statistics.median(turn[number][clock] for turn in turns) for number in range(2)] for clock in range(2)
    )
    return {
        "ratio": round(seconds[1] / seconds[0], 3),
        "cpu_ratio": round(cpu_seconds[1] / cpu_seconds[0], 3),
        "seconds": {"keras": round(seconds[0], 4), "fitroom": round(seconds[1], 4)},
        "first_seconds": {"keras": round(first[0], 2), "fitroom": round(first[1], 2)},
    }


if __name__ == "__main__":
    main()
