"""Layers without weights that need no other operation, only less of Keras's bookkeeping around each call.

Keras spends some hundred microseconds of Python on a layer's call: it looks for masks, converts, opens scopes. On a
fast card that is longer than the kernels take.
"""

import keras

PLAIN_LAYERS = (
    keras.layers.Activation,
    keras.layers.Add,
    keras.layers.Average,
    keras.layers.Concatenate,
    keras.layers.Cropping2D,
    keras.layers.Flatten,
    keras.layers.GlobalAveragePooling1D,
    keras.layers.GlobalAveragePooling2D,
    keras.layers.GlobalMaxPooling1D,
    keras.layers.GlobalMaxPooling2D,
    keras.layers.LeakyReLU,
    keras.layers.Maximum,
    keras.layers.Multiply,
    keras.layers.Permute,
    keras.layers.ReLU,
    keras.layers.Reshape,
    keras.layers.Softmax,
    keras.layers.Subtract,
    keras.layers.UpSampling2D,
    keras.layers.ZeroPadding2D,
)
"""Their `call` is a function of its tensors alone."""
