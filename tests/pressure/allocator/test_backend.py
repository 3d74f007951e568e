"""TensorFlow training under real memory pressure, without a GPU.

Its CPU allocator can be the same one as on a GPU, with a limit and counters; `test_backend_contract.py` runs this
file in a process with the variables that make it so.
"""

import os
import time

import keras
import numpy as np
import pytest

from fitroom.backends.choose import current_backend

MIB = 2**20


def train_one_batch(batch_size: int) -> None:
    model = keras.Sequential(
        [
            keras.Input((32, 32, 3)),
            keras.layers.Conv2D(16, 3, padding="same", activation="relu"),
            keras.layers.Conv2D(16, 3, padding="same", activation="relu"),
            keras.layers.GlobalAveragePooling2D(),
            keras.layers.Dense(5),
        ]
    )
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    pictures = np.zeros((batch_size, 32, 32, 3), "float32")
    labels = np.zeros(batch_size, "int32")
    model.fit(pictures, labels, batch_size=batch_size, verbose=0)


def measured_peak_bytes(batch_size: int) -> int:
    backend = current_backend()
    device = backend.devices()[0]
    backend.release()
    backend.reset_peak(device)
    train_one_batch(batch_size)
    peak_bytes = backend.read_memory(device).peak_bytes
    assert peak_bytes is not None
    return peak_bytes


def test_the_limit_is_the_one_that_was_set():
    backend = current_backend()
    limit_bytes = int(os.environ["TF_CPU_BFC_MEM_LIMIT_IN_MB"]) * MIB
    assert backend.read_memory(backend.devices()[0]).limit_bytes == limit_bytes


def test_the_peak_of_training_grows_with_the_batch():
    small = measured_peak_bytes(8)
    large = measured_peak_bytes(512)
    # Each picture holds at least the two convolutions' outputs until the backward pass. By how much more it is than
    # the small batch's peak depends on the machine's load: kernels that run at once each take their scratch.
    assert large >= 512 * 2 * 32 * 32 * 16 * 4
    assert large > small


def test_a_reset_peak_starts_from_what_is_in_use():
    peak_of_training = measured_peak_bytes(512)
    backend = current_backend()
    device = backend.devices()[0]
    deadline = time.monotonic() + 30
    peak_bytes = peak_of_training
    # TensorFlow frees what a step took in threads of its own, a little after the step.
    while peak_bytes >= peak_of_training and time.monotonic() < deadline:
        backend.release()
        backend.reset_peak(device)
        peak_bytes = backend.read_memory(device).peak_bytes
    assert peak_bytes < peak_of_training


def test_training_that_dies_of_memory_is_recognised_and_leaves_a_process_that_trains():
    backend = current_backend()
    with pytest.raises(Exception) as raised:  # noqa: PT011
        train_one_batch(4096)
    assert backend.is_out_of_memory(raised.value)

    device = backend.devices()[0]
    kept_by_the_error = backend.read_memory(device).in_use_bytes
    del raised
    backend.release()
    assert backend.read_memory(device).in_use_bytes < kept_by_the_error
    train_one_batch(8)
