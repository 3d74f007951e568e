"""A small classifier, samples for it, and its weights: for `fitroom.fit` beside `model.fit`."""

import keras
import numpy as np
from keras import layers

TIGHT = {"rtol": 2e-4, "atol": 2e-6}


def momentum():
    """One slot a weight, and few operations: TensorFlow traces Adam's for each weight, in each graph."""
    return keras.optimizers.SGD(0.05, momentum=0.9)


def dense_net(**compile_arguments):
    keras.utils.set_random_seed(7)
    model = keras.Sequential([keras.Input((6,)), layers.Dense(8, activation="tanh"), layers.Dense(3)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(**{"optimizer": momentum(), "loss": loss, "metrics": ["accuracy"]} | compile_arguments)
    return model


def samples(number=50, seed=0):
    random = np.random.default_rng(seed)
    return random.normal(size=(number, 6)).astype("float32"), random.integers(0, 3, number).astype("int32")


def weights_of(model):
    return [np.array(keras.ops.convert_to_numpy(v)) for v in model.trainable_variables]


def assert_same(one, other, **tolerance):
    for a, b in zip(one, other, strict=True):
        np.testing.assert_allclose(a, b, **tolerance or TIGHT)
