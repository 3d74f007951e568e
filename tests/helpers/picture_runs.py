"""`fitroom train` as it is typed, on pictures that are quick to make and easy to learn."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from processes import QUICK_COMPILING, hide_tensorflow
from ready_process import run_forked

COLOURS = {"red": (200, 40, 40), "green": (40, 200, 40), "blue": (40, 40, 200)}
TINY = """
import keras
from keras import layers


def make_model(classes, image_size):
    x = inputs = keras.Input((image_size, image_size, 3))
    x = layers.Rescaling(1 / 255)(x)
    x = layers.Conv2D(8, 3, strides=2, name="conv")(x)
    x = layers.BatchNormalization(name="norm", momentum=0.9)(x)
    x = layers.ReLU()(x)
    x = layers.Dropout(0.2)(layers.GlobalAveragePooling2D()(x))
    return keras.Model(inputs, layers.Dense(classes, activation="softmax", name="head")(x), name="tiny")


def four_classes():
    return make_model(4, 32)
"""
TRAIN = ("train", "pictures", "--model", "tiny.py:make_model", "--image-size", "32", "--batch-size", "8")
LEARNS = ("--learning-rate", "0.02", "--epochs", "4")


def make_pictures(folder: Path, count: int = 18) -> Path:
    """JPEG files in a folder per colour, and a file that is none; beside it the module that builds a model."""
    random = np.random.default_rng(0)
    for name, colour in COLOURS.items():
        (folder / "pictures" / name).mkdir(parents=True)
        for number in range(count):
            pixels = np.clip(np.array(colour) + random.normal(0, 50, (40, 44, 3)), 0, 255).astype("uint8")
            Image.fromarray(pixels).save(folder / "pictures" / name / f"{number:02}.jpg", quality=90)
    (folder / "pictures" / "red" / "broken.jpg").write_bytes(b"no picture at all")
    (folder / "tiny.py").write_text(TINY)
    return folder


def environment(backend: str) -> dict[str, str]:
    """Of a process that sees no card."""
    unset = ("TF_CPU_ALLOCATOR_USE_BFC", "TF_CPU_BFC_MEM_LIMIT_IN_MB", "TF_ENABLE_ONEDNN_OPTS", "TF_CPP_MIN_LOG_LEVEL")
    kept = {name: value for name, value in os.environ.items() if name not in unset}
    return kept | {
        "KERAS_BACKEND": backend,
        "CUDA_VISIBLE_DEVICES": "",
        "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",  # small programs, run a few times
        "XLA_FLAGS": QUICK_COMPILING,
        "COLUMNS": "120",
    }


def fitroom(
    folder: Path, *arguments: str, backend: str = "jax", children_have_tensorflow: bool = False
) -> subprocess.CompletedProcess[str]:
    """The command, to its end. Processes that it starts itself do not import TensorFlow beside another backend."""
    command, env = ("-m", "fitroom", *arguments), environment(backend)
    if backend != "tensorflow" and not children_have_tensorflow:
        env = hide_tensorflow(env)
    return run_forked(*command, backend=backend, with_tensorflow=True, cwd=folder, env=env)


def stopped(
    folder: Path, *arguments: str, when: Callable[[], bool], by: signal.Signals, backend: str = "jax"
) -> tuple[int, str]:
    """The command, stopped by a signal when something is the case: its exit code and what it wrote to stderr."""
    said = folder / f"stderr-{time.monotonic_ns()}.txt"
    with open(said, "w") as file:
        child = subprocess.Popen(
            [sys.executable, "-m", "fitroom", *arguments],
            cwd=folder,
            env=environment(backend) if backend == "tensorflow" else hide_tensorflow(environment(backend)),
            stdout=subprocess.DEVNULL,
            stderr=file,
        )
        while not when():
            assert child.poll() is None, f"it ended before it could be stopped: {said.read_text()}"
            time.sleep(0.002)
        child.send_signal(by)
        return child.wait(timeout=300), said.read_text()


def read(path: Path) -> Any:
    """A file of JSON."""
    return json.loads(path.read_text())
