"""A function that returns a model, for `fitroom estimate examples/build.py:make_model`."""

import keras
from keras import layers


def make_model() -> keras.Model:
    """A small residual network for 160-pixel pictures in 5 classes."""
    inputs = keras.Input((160, 160, 3))
    x = layers.Rescaling(1 / 255)(inputs)
    x = layers.Conv2D(32, 3, strides=2, activation="relu")(x)
    for filters in (64, 128, 256):
        shortcut = layers.Conv2D(filters, 1, strides=2)(x)
        x = layers.SeparableConv2D(filters, 3, padding="same")(x)
        x = layers.BatchNormalization()(x)
        x = layers.Activation("relu")(x)
        x = layers.MaxPooling2D(3, strides=2, padding="same")(x)
        x = layers.Add()([x, shortcut])
    x = layers.GlobalAveragePooling2D()(x)
    outputs = layers.Dense(5, activation="softmax")(layers.Dropout(0.25)(x))
    model = keras.Model(inputs, outputs, name="small_residual")
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model
