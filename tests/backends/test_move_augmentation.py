"""Augmentation taken out of a model: the same weights and outputs, jit again, and a word in estimates and plans."""

import keras
import numpy as np
import pytest
from keras import layers

import fitroom
from fitroom.backends.choose import current_backend


def net(*first):
    inputs = x = keras.Input((12, 12, 3))
    for layer in first:
        x = layer(x)
    x = layers.Conv2D(2, 3)(x)
    model = keras.Model(inputs, layers.Dense(2)(layers.GlobalAveragePooling2D()(x)))
    model.compile("sgd", "mse")
    return model


def images():
    return np.random.default_rng(0).uniform(0, 255, (4, 12, 12, 3)).astype("float32")


@pytest.mark.quick_on("torch")
def test_weights_optimizer_and_outputs_stay():
    model = net(layers.Rescaling(1 / 255), keras.Sequential([layers.RandomFlip(), layers.RandomRotation(0.1)]))
    rest, augment = fitroom.move_augmentation(model)
    assert all(one is other for one, other in zip(rest.weights, model.weights, strict=True))
    assert rest.optimizer is model.optimizer
    assert augment.always_needed, "the rescaling has moved, too"
    np.testing.assert_allclose(
        rest.predict(augment(images(), training=False), verbose=0), model.predict(images(), verbose=0), atol=1e-6
    )
    augmented = augment(images())
    assert isinstance(augmented, np.ndarray)
    assert not np.allclose(augmented, augment(images(), training=False))
    fitroom.fit(rest, augmented, np.zeros((4, 2)), verbose=0)


@pytest.mark.quick_on("torch")
def test_a_crop_changes_the_input_of_what_is_left():
    rest, augment = fitroom.move_augmentation(net(layers.RandomCrop(8, 8)))
    assert rest.input_shape == (None, 8, 8, 3)
    assert augment.always_needed
    assert augment(images()).shape == (4, 8, 8, 3)
    _, flips = fitroom.move_augmentation(net(layers.RandomFlip()))
    assert not flips.always_needed


@pytest.mark.quick_on("torch")
def test_what_cannot_be_taken_out_is_said():
    with pytest.raises(fitroom.ModelError, match="does not begin with augmentation"):
        fitroom.move_augmentation(net(layers.Conv2D(3, 1), layers.RandomFlip()))
    with pytest.raises(fitroom.ModelError, match="not at its beginning: late"):
        fitroom.move_augmentation(net(layers.RandomFlip(), layers.Conv2D(3, 1), layers.RandomFlip(name="late")))

    class Own(keras.Model):
        def call(self, x):
            return x

    with pytest.raises(fitroom.ModelError, match="Functional or Sequential"):
        fitroom.move_augmentation(Own())


@pytest.mark.backends("jax", "tensorflow")
def test_a_plan_says_what_is_gained_and_changes_nothing():
    model = net(layers.RandomCrop(10, 10, name="crop"))
    note = next(note for note in fitroom.estimate(model, 4, gpu="T4").notes if "move_augmentation" in note)
    assert note.startswith("The step is not jitted, for crop.")
    plan = fitroom.plan(model, 4, gpu="T4", budget="1GiB")
    gain = [note for note in plan.notes if note.startswith("With augmentation in the input pipeline")]
    if fitroom.estimate(fitroom.move_augmentation(model)[0], 4, gpu="T4").method == "compiled":  # else not known
        assert len(gain) == 1
        assert "jitted, needs" in gain[0]
    assert not [note for note in fitroom.estimate(net(), 4, gpu="T4").notes if "move_augmentation" in note]
    assert current_backend().name == "tensorflow" or plan.recipe.jit is None
