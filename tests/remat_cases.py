"""Small models that are each hard to recompute in their own way: their graphs, their state, their losses."""

from collections.abc import Callable
from dataclasses import dataclass

import keras
import numpy as np
from keras import layers

from fitroom.train.batch import Batch

SAMPLES, SIZE, CLASSES = 8, 8, 3


@dataclass(frozen=True, kw_only=True)
class Case:
    make: Callable[[], keras.Model]
    rtol: float = 2e-4
    atol: float = 2e-6


def pictures(size: int = SAMPLES) -> Batch:
    random = np.random.default_rng(1)
    return Batch(
        x=random.normal(size=(size, SIZE, SIZE, 3)).astype("float32"),
        y=random.integers(0, CLASSES, size).astype("int32"),
    )


def classifier(body, *, kind=keras.Model, optimizer=None) -> keras.Model:
    """A model of small pictures with some layers between its input and its classes, the same weights each time."""
    keras.utils.set_random_seed(7)
    inputs = keras.Input((SIZE, SIZE, 3))
    x = layers.GlobalAveragePooling2D(name="pool")(body(inputs))
    outputs = layers.Dense(CLASSES, activation="softmax", dtype="float32", name="classes")(x)
    model = kind(inputs, outputs)
    optimizer = optimizer or keras.optimizers.SGD(0.1, momentum=0.9)
    model.compile(optimizer, "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def block(x, name, filters=4, **options):
    x = layers.Conv2D(filters, 3, padding="same", use_bias=False, name=f"{name}_conv", **options)(x)
    x = layers.BatchNormalization(name=f"{name}_norm")(x)
    return layers.Activation("relu", name=f"{name}_relu")(x)


def chain(x):
    for number in range(4):
        x = block(x, f"block{number}")
    return x


CASES = {"chain": Case(make=lambda: classifier(chain))}
