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


def dense_with_shortcuts() -> keras.Model:
    """Gradients meet at every Add; the Dropout and the normalizations save what they need."""
    inputs = keras.Input((256,))
    x = layers.Dense(512, activation="relu")(inputs)
    for _ in range(3):
        y = layers.BatchNormalization()(layers.Dense(512, activation="gelu")(x))
        x = layers.Add()([x, y])
    return keras.Model(inputs, layers.Dense(10, activation="softmax")(layers.Dropout(0.3)(x)))


def convolutions_with_shortcuts() -> keras.Model:
    inputs = keras.Input((48, 48, 3))
    x = layers.Conv2D(16, 3, padding="same")(inputs)
    for _ in range(2):
        y = layers.ReLU()(layers.BatchNormalization()(layers.Conv2D(16, 3, padding="same", use_bias=False)(x)))
        x = layers.Add()([x, y])
    x = layers.SeparableConv2D(32, 3)(layers.MaxPooling2D()(x))
    return keras.Model(inputs, layers.Dense(10, activation="softmax")(layers.GlobalAveragePooling2D()(x)))
