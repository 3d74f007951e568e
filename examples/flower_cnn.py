"""A small network for small pictures of flowers: `examples/flower_cnn.py:make_model`."""

import keras
from keras import layers


def make_model(classes: int = 5, image_size: int = 64) -> keras.Model:
    """Four convolutions. Nearly all of the memory that training it takes is activations, as in most networks."""
    inputs = keras.Input((image_size, image_size, 3))
    x = layers.Rescaling(1 / 127.5, offset=-1)(inputs)
    for filters in (32, 48, 64, 96):
        x = layers.Conv2D(filters, 3, padding="same", use_bias=False)(x)
        x = layers.BatchNormalization(momentum=0.8)(x)  # short runs: the averages must keep up
        x = layers.Activation("relu")(x)
        x = layers.MaxPooling2D(2)(x)
    x = layers.GlobalAveragePooling2D()(x)
    return keras.Model(inputs, layers.Dense(classes, activation="softmax")(x), name="flower_cnn")
