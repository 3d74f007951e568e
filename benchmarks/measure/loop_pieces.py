"""What TensorFlow keeps on the host for each piece of a loop's round: kernels, variables, iterators.

    python benchmarks/measure/loop_pieces.py

Each piece is made and dropped a few hundred times, three times over, after as many that are not counted; what the heap
has more in use after garbage was collected, divided by their number, is what one keeps. "Emptied" means that the cache
of kernels is emptied after each, as `fitroom.fresh()` does. Writes results/loop_pieces.json.
"""

import datetime
import gc
import json
import os
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

os.environ["KERAS_BACKEND"] = "tensorflow"
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = ""

import tensorflow as tf
from tensorflow.python.eager import context

from fitroom.loops.host import read_host

RESULT = Path(__file__).parents[1] / "results" / "loop_pieces.json"
TEN_OPERATIONS = (
    *(tf.abs, tf.exp, tf.sin, tf.cos, tf.negative),
    *(tf.square, tf.sqrt, tf.floor, tf.sign, tf.tanh),
)
ONE = tf.constant(1.0)


def main() -> None:
    """Measure each piece and write the results."""
    batches = tf.data.Dataset.range(3).map(lambda x: x + 1)
    names = iter(range(10**9))
    pieces: dict[str, tuple[Callable[[], object], int]] = {
        "an operation whose kernel is cached": (lambda: tf.abs(ONE), 1),
        "a kernel, emptied": (make_ten_kernels, 10),
        "a variable of a new name": (lambda: tf.Variable(1.0, name=f"kept_{next(names)}"), 1),
        "a variable of a new name, emptied": (lambda: make_variable(f"emptied_{next(names)}"), 1),
        "an iterator over tf.data": (lambda: list(batches), 1),
    }
    kept = {name: measure(make, count) for name, (make, count) in pieces.items()}
    record = {
        "bytes_each": kept,
        "versions": {"tensorflow": tf.__version__, "python": sys.version.split()[0]},
        "date": datetime.datetime.now(tz=datetime.UTC).date().isoformat(),
    }
    RESULT.write_text(json.dumps(record, indent=1) + "\n")
    print(RESULT.read_text())


def make_ten_kernels() -> None:
    """Ten operations, whose kernels are made anew."""
    for operation in TEN_OPERATIONS:
        operation(ONE)
    context.context().clear_kernel_cache()


def make_variable(name: str) -> None:
    """One variable, whose kernels do not stay in the cache."""
    tf.Variable(1.0, name=name)
    context.context().clear_kernel_cache()


def measure(make: Callable[[], object], pieces: int, times: int = 300) -> list[float]:
    """The bytes that each piece keeps, in three measurements."""
    readings = []
    for _ in range(4):
        for _ in range(times):
            make()
        gc.collect()
        readings.append(read_host().heap_bytes or 0)
    return [round((later - earlier) / times / pieces, 1) for earlier, later in pairwise(readings)]


if __name__ == "__main__":
    main()
