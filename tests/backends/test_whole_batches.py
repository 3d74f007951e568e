"""Batches that cannot be split: blocks are recomputed in their place, and what is left is said."""

import keras
import numpy as np
import pytest
from keras import layers

import fitroom
from fitroom.keras_model.recompute import has_blocks

OPTIONS = {"batch_size": 8, "shuffle": False, "verbose": 0}


class RunsOut(layers.Layer):
    """Raises out of memory as often as `left` says. PLANTED: the framework itself does not run out here."""

    left = 0

    def call(self, x, training=False):
        if training and RunsOut.left:
            RunsOut.left -= 1
            raise RuntimeError("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 1.0GiB (planted)")
        return x


class OwnStep(keras.Model):
    def train_step(self, *arguments):
        return super().train_step(*arguments)


def spread(y_true, y_pred):
    return keras.ops.mean(keras.ops.square(y_true - y_pred)) - keras.ops.var(y_pred)


def net(kind, loss):
    keras.utils.set_random_seed(3)
    inputs = x = keras.Input((6,))
    for _ in range(4):
        x = layers.Add()([x, layers.Dense(6)(layers.Dense(32, activation="tanh")(layers.Dense(32)(x)))])
    model = kind(inputs, layers.Dense(1)(RunsOut()(x)))
    model.compile(keras.optimizers.SGD(0.01), loss)
    return model


def samples():
    random = np.random.default_rng(0)
    return random.normal(size=(16, 6)).astype("float32"), random.normal(size=(16, 1)).astype("float32")


@pytest.mark.parametrize(("kind", "loss"), [(OwnStep, "mse"), (keras.Model, spread)], ids=["own step", "coupled loss"])
def test_blocks_are_recomputed_in_place_of_micro_batches_with_the_same_result(kind, loss):
    if kind is OwnStep and keras.backend.backend() == "tensorflow":
        pytest.skip("the step of a model's own is traced to make its variables: what is planted raises there")
    plain = net(kind, loss)
    fitroom.fit(plain, *samples(), **OPTIONS)
    model = net(kind, loss)
    RunsOut.left = 1
    found = fitroom.fit(model, *samples(), **OPTIONS).fitroom
    assert found["recipe"]["remat"] == "blocks"
    assert (found["out_of_memory"], found["micro_batch"]) == (1, None), "the batch stays whole"
    assert "and whole: the" in found["events"][-1]["message"]
    for one, other in zip(plain.weights, model.weights, strict=True):
        np.testing.assert_allclose(
            keras.ops.convert_to_numpy(one), keras.ops.convert_to_numpy(other), rtol=1e-4, atol=1e-6
        )


@pytest.mark.backends("torch")
def test_what_is_left_is_offered_when_that_is_not_enough():
    model = net(OwnStep, "mse")
    RunsOut.left = 9
    with pytest.raises(fitroom.OutOfMemoryError, match="its own `train_step`") as error:
        fitroom.fit(model, *samples(), **OPTIONS)
    RunsOut.left = 0
    assert "mixed precision" in error.value.hint
    assert "recompute blocks" not in error.value.hint, "that was tried"
    whats = [setting.what for setting in error.value.explanation.settings]
    assert any("mixed precision" in what for what in whats)
    assert not any("micro-batches" in what for what in whats)


@pytest.mark.backends("torch")
def test_a_remat_that_the_user_ruled_out_is_offered_and_not_taken():
    model = net(OwnStep, "mse")
    RunsOut.left = 9
    with pytest.raises(fitroom.OutOfMemoryError) as error:
        fitroom.fit(model, *samples(), recipe=fitroom.Recipe(remat="none"), **OPTIONS)
    RunsOut.left = 0
    assert "recompute blocks" in error.value.hint


@pytest.mark.backends("torch")
def test_blocks_are_looked_for_in_a_model_that_compares_all_samples_with_all_others():
    x = keras.Input((6,))
    encoded = layers.Dense(32)(layers.Dense(32, activation="tanh")(x))
    model = keras.Model(x, keras.ops.matmul(encoded, keras.ops.transpose(encoded)))
    model.compile("sgd", "mse")
    assert model.output_shape == (None, None)
    assert not has_blocks(model)
