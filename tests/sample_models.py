"""A small model that the checks of every backend share."""

import keras
from keras import layers

SIZE = 32
ADAM_AND_LOSS = {"optimizer": "adam", "loss": "sparse_categorical_crossentropy"}


def classifier(**compile_arguments) -> keras.Model:
    """Convolution, BatchNormalization and Dropout; compiled where something is said about that."""
    inputs = keras.Input((SIZE, SIZE, 3))
    x = layers.Conv2D(32, 3, padding="same", name="conv")(inputs)
    x = layers.BatchNormalization(name="norm")(x)
    x = layers.ReLU(name="relu")(x)
    x = layers.GlobalAveragePooling2D(name="pool")(x)
    x = layers.Dropout(0.5, name="dropout")(x)
    x = layers.Dense(10, activation="softmax", name="head")(x)
    model = keras.Model(inputs, x, name="classifier")
    if compile_arguments:
        model.compile(**ADAM_AND_LOSS | compile_arguments)
    return model
