"""What is compiled for one training and serves the next on TensorFlow."""

import gc
import weakref

import keras
import numpy as np
import pytest
from keras import layers

import fitroom
from fitroom.backends.choose import current_backend
from fitroom.backends.tensorflow.train import stepper as stepper_module
from fitroom.batch import Batch

X, Y = np.ones((8, 4), "float32"), np.zeros((8, 2), "float32")


def net():
    model = keras.Sequential([keras.Input((4,)), layers.Dense(3, name="inner"), layers.Dense(2)])
    model.compile("adam", "mse")
    return model


@pytest.fixture
def made(monkeypatch):
    """The names of the functions that programs were made of."""
    names = []

    class Noted(stepper_module.Program):
        def __init__(self, function, *positional, **named):
            names.append(function.__name__)
            super().__init__(function, *positional, **named)

    monkeypatch.setattr(stepper_module, "Program", Noted)
    return names


def train(model, **asked):
    return fitroom.fit(model, X, Y, batch_size=8, verbose=0, recipe=fitroom.Recipe(**asked))


def test_programs_serve_the_next_training(made, tmp_path):
    model, twin = net(), net()
    twin.set_weights(model.get_weights())
    train(model, micro_batch=4)
    first = list(made)
    assert first
    train(model, micro_batch=4)
    assert made == first
    fitroom.fit(twin, X, Y, batch_size=8, epochs=2, verbose=0, recipe=fitroom.Recipe(micro_batch=4))
    for each, other in zip(model.get_weights(), twin.get_weights(), strict=True):
        np.testing.assert_array_equal(each, other)
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(again.predict(X, verbose=0), model.predict(X, verbose=0))


def test_a_size_that_may_not_fit_is_tried_in_graph_mode_unless_a_plan_says_it_fits(made, monkeypatch):
    monkeypatch.setattr(stepper_module, "may_run_out", lambda *_: True)
    model = net()
    stepper = current_backend().stepper(model, jit=True)
    stepper.trust(8)
    stepper.train(Batch(x=X, y=Y), 8)
    assert "gradients" not in made  # a small model's step is Keras's own
    stepper.forget()  # as after running out of memory
    stepper.train(Batch(x=X, y=Y), 8)
    assert made.count("gradients") == 1


def other_loss(model):
    model.compile("adam", "mae")


def frozen(model):
    model.get_layer("inner").trainable = False


def eager(model):
    model.run_eagerly = True


@pytest.mark.parametrize("change", [other_loss, frozen, eager])
def test_a_model_that_was_changed_gets_programs_of_its_own(made, change):
    model = net()
    train(model)
    made.clear()
    change(model)
    inner = model.get_layer("inner").get_weights()
    train(model)
    assert made
    stayed = all(np.array_equal(a, b) for a, b in zip(inner, model.get_layer("inner").get_weights(), strict=True))
    assert stayed == (change is frozen)


def test_what_is_kept_goes_with_the_model():
    model = net()
    train(model)
    reference = weakref.ref(model)
    del model
    gc.collect()
    assert reference() is None
