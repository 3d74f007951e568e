"""Small models that the planner is asked about."""

import keras

MIB = 2**20


def residual_net(image_size=64):
    """Blocks with BatchNormalization, so that there is something to recompute and statistics to spare."""
    x = inputs = keras.Input((image_size, image_size, 3))
    for filters in (8, 16):
        x = keras.layers.Conv2D(filters, 3, padding="same", use_bias=False)(x)
        x = keras.layers.BatchNormalization()(x)
        shortcut = x = keras.layers.Activation("relu")(x)
        for _ in range(3):
            x = keras.layers.Conv2D(filters, 3, padding="same", use_bias=False)(x)
            x = keras.layers.BatchNormalization()(x)
            x = keras.layers.Activation("relu")(x)
        x = keras.layers.add([x, shortcut])
        x = keras.layers.MaxPooling2D()(x)
    outputs = keras.layers.Dense(5, activation="softmax")(keras.layers.GlobalAveragePooling2D()(x))
    return keras.Model(inputs, outputs)


def dense_net():
    """No statistics, no pictures; nearly all of its memory is weights and what Adam keeps of them."""
    return keras.Sequential([keras.Input((512,)), keras.layers.Dense(2048, activation="relu"), keras.layers.Dense(5)])
