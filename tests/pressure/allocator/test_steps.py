"""Steps on TensorFlow that really run out of memory, on its CPU allocator with a limit.

Nothing is planted here. TensorFlow waits ten seconds for memory before it gives up, each time.
"""

import time
import weakref

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

import fitroom
from fitroom.backends.choose import current_backend
from fitroom.backends.tensorflow.train import stepper as stepper_module
from fitroom.batch import Batch
from fitroom.recipe import Remat
from step_cases import state_of
from step_comparison import assert_close, assert_identical, numbers

MIB = 2**20
BATCH, MICRO_BATCH = 1500, 100
WAYS = ("keras's own step", "gradients, then update", "jitted")


@pytest.fixture(autouse=True)
def memory_of_its_own():
    """What a check leaves behind is collected before the next."""
    yield
    current_backend().release()


def in_use_bytes():
    return tf.config.experimental.get_memory_info("CPU:0")["current"]


def settled_bytes(expected, tolerance):
    """What is in use, once it is what is expected: TensorFlow frees in threads of its own, a little late."""
    deadline = time.monotonic() + 30
    while abs(in_use_bytes() - expected) > tolerance and time.monotonic() < deadline:
        current_backend().release()
        time.sleep(0.1)
    return in_use_bytes()


def convolutions(*, jit=False):
    """Statistics, seeds and metrics are among what a step changes."""
    keras.utils.set_random_seed(7)
    model = keras.Sequential(
        [
            keras.Input((32, 32, 3)),
            layers.Conv2D(16, 3, padding="same"),
            layers.BatchNormalization(),
            layers.ReLU(),
            layers.Conv2D(16, 3, padding="same", activation="relu"),
            layers.GlobalAveragePooling2D(),
            layers.Dropout(0.3),
            layers.Dense(5, activation="softmax"),
        ]
    )
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"], jit_compile=jit)
    return model


def pictures(size):
    random = np.random.default_rng(1)
    return Batch(x=random.random((size, 32, 32, 3), "float32"), y=random.integers(0, 5, size).astype("int32"))


def choose(way, monkeypatch):
    if way != "keras's own step":
        monkeypatch.setattr(stepper_module, "SMALL_BYTES", -1)
    model, twin = (convolutions(jit=way == "jitted") for _ in range(2))
    return model, twin


@pytest.mark.parametrize("way", WAYS)
def test_a_batch_that_cannot_fit_leaves_every_bit_as_it_was_and_fits_in_parts(way, monkeypatch):
    model, twin = choose(way, monkeypatch)
    stepper, batch = current_backend().stepper(model, jit=None), pictures(BATCH)
    stepper.train(pictures(MICRO_BATCH), MICRO_BATCH)
    before, before_bytes = state_of(model), in_use_bytes()
    with pytest.raises(tf.errors.ResourceExhaustedError) as raised:
        stepper.train(batch, batch.size)
    assert_identical(state_of(model), before)
    del raised
    stepper.forget()
    assert settled_bytes(before_bytes, MIB) == pytest.approx(before_bytes, abs=MIB)
    # Had TensorFlow given the memory of variables away, they would now hold these numbers.
    others = [tf.ones((MIB // 4,)) for _ in range(100)]
    assert_identical(state_of(model), before)
    del others

    logs = numbers(stepper.train(batch, MICRO_BATCH))
    unharmed = current_backend().stepper(twin, jit=None)
    unharmed.train(pictures(MICRO_BATCH), MICRO_BATCH)
    assert_close(logs, numbers(unharmed.train(batch, MICRO_BATCH)), rtol=1e-5)
    assert_close(state_of(model), state_of(twin), rtol=1e-4, atol=1e-6)


def test_validation_that_cannot_fit_is_not_counted():
    model = convolutions()
    stepper, batch = current_backend().stepper(model, jit=None), pictures(6000)
    stepper.test(pictures(MICRO_BATCH), MICRO_BATCH)
    before = state_of(model)
    with pytest.raises(tf.errors.ResourceExhaustedError) as raised:
        stepper.test(batch, batch.size)
    assert_identical(state_of(model), before)
    explained = fitroom.explain(raised.value)
    del raised
    assert (explained.failure.framework, explained.failure.phase) == ("tensorflow", "forward")
    assert explained.failure.shape[0] == 6000
    current_backend().release()
    assert np.isfinite(numbers(stepper.test(batch, MICRO_BATCH))["loss"])


# Much weight and little else.

WIDTH, DEPTH = 1000, 2
WEIGHTS_MIB = DEPTH * WIDTH**2 * 4 // MIB


def heavy():
    keras.utils.set_random_seed(7)
    model = keras.Sequential([keras.Input((WIDTH,)), *[layers.Dense(WIDTH) for _ in range(DEPTH)]])
    model.compile("adam", "mse", jit_compile=False)
    return model


def numbers_for_heavy():
    random = np.random.default_rng(1)
    x, y = (random.random((8, WIDTH), "float32") for _ in range(2))
    return Batch(x=x, y=y)


@pytest.mark.parametrize("micro_batch", [8, 4], ids=["whole", "cut"])
def test_a_step_leaves_neither_gradients_nor_old_weights_behind(micro_batch):
    model, batch = heavy(), numbers_for_heavy()
    stepper = current_backend().stepper(model, jit=None)
    stepper.train(batch, micro_batch)
    before_bytes = in_use_bytes()
    for _ in range(3):
        stepper.train(batch, micro_batch)
    # Pieces that fill holes count with what is left of the hole: less than one of the two weights.
    tolerance = WEIGHTS_MIB * MIB // 2
    assert settled_bytes(before_bytes, tolerance) == pytest.approx(before_bytes, abs=tolerance)


@pytest.mark.parametrize("jit", [False, True], ids=["graph", "jitted"])
@pytest.mark.parametrize(("micro_batch", "recomputes"), [(8, 0), (4, 0), (8, 1)], ids=["whole", "cut", "remat"])
def test_a_model_that_was_trained_and_is_gone_leaves_nothing_behind(micro_batch, recomputes, jit):
    def trained():
        model = heavy()
        segments = [(layer.name, layer.name) for layer in model.layers[:recomputes]]
        stepper = current_backend().stepper(model, jit=jit, remat=Remat(segments=segments) if segments else None)
        stepper.train(numbers_for_heavy(), micro_batch)
        return [weakref.ref(variable.value.handle) for variable in (*model.variables, *model.optimizer.variables)]

    handles = trained()
    current_backend().release()
    assert [handle() for handle in handles] == [None] * len(handles)
