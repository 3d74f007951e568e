"""`fitroom.watch` under real memory pressure: the warning comes before memory is out, and an error does not end it."""

import os

import keras
import numpy as np
import pytest
import tensorflow as tf

import fitroom

LIMIT_BYTES = int(os.environ["TF_CPU_BFC_MEM_LIMIT_IN_MB"]) * 2**20
WIDTH = 1024


def wide_net():
    """Takes 32 KiB of activations a sample, and little else."""
    model = keras.Sequential([keras.Input((4,))])
    for _ in range(8):
        model.add(keras.layers.Dense(WIDTH, activation="relu"))
    model.add(keras.layers.Dense(1))
    model.compile("sgd", "mse")
    return model


def train(model, batch_size, **options):
    x, y = np.zeros((batch_size, 4), "float32"), np.zeros((batch_size, 1), "float32")
    return model.fit(x, y, batch_size=batch_size, verbose=0, **options)


def test_a_step_that_nearly_fills_the_memory_is_warned_of_and_runs(caplog):
    model = wide_net()
    with fitroom.watch(verbose=False) as roomy:
        train(model, 256)
    assert "memory is nearly full" not in caplog.text
    share = roomy.summary().peak_bytes / LIMIT_BYTES
    with fitroom.watch(verbose=False, warn_at=share / 2) as watched:
        train(model, 256)
    assert caplog.text.count("memory is nearly full") == 1
    assert "on cpu:0" in caplog.text
    assert watched.summary().peak_bytes < LIMIT_BYTES


def test_a_smaller_limit_of_ones_own_counts(caplog):
    with fitroom.watch(verbose=False, limit="8MiB") as watched:
        train(wide_net(), 64)
    assert "of 8.0 MiB were in use at once on cpu:0" in caplog.text
    assert watched.summary().devices[0].limit_bytes == 8 * 2**20


def test_out_of_memory_in_the_block_leaves_the_summary_with_the_peak(capsys, caplog):
    with pytest.raises(tf.errors.ResourceExhaustedError), fitroom.watch() as watched:
        train(wide_net(), 10_000)
    assert watched.summary().peak_bytes > 0.5 * LIMIT_BYTES
    assert "of 400.0 MiB" in capsys.readouterr().err
