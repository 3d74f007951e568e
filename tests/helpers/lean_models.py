"""Small nets of the forms that pruning has to follow."""

import keras
import numpy as np
from keras import layers

SIZE = 12


def residual():
    """Sums across a projection, as in ResNet."""
    inputs = keras.Input((SIZE, SIZE, 3))
    x = layers.Conv2D(8, 3, padding="same", name="stem")(inputs)
    for number in range(2):
        y = layers.ReLU()(layers.BatchNormalization()(layers.Conv2D(12, 1, use_bias=False, name=f"narrow{number}")(x)))
        y = layers.BatchNormalization()(layers.Conv2D(8, 3, padding="same", name=f"wide{number}")(y))
        x = layers.Add()([x, y])
    x = layers.Add()([layers.Conv2D(6, 1, name="projection")(x), layers.SeparableConv2D(6, 3, padding="same")(x)])
    return keras.Model(inputs, _head(x), name="residual")


def dense_blocks():
    """Each layer sees the channels of all before it, as in DenseNet."""
    inputs = keras.Input((SIZE, SIZE, 3))
    x = layers.Conv2D(6, 3, padding="same", name="stem")(inputs)
    for number in range(3):
        y = layers.Conv2D(4, 3, padding="same", name=f"growth{number}")(layers.ReLU()(layers.BatchNormalization()(x)))
        x = layers.Concatenate()([x, y])
    return keras.Model(inputs, _head(layers.AveragePooling2D(2)(x)), name="dense_blocks")


def inception():
    """Branches side by side, one of them the pooled input, then a residual sum over all of them."""
    inputs = keras.Input((SIZE, SIZE, 3))
    x = layers.Conv2D(8, 3, padding="same", name="stem")(inputs)
    branches = [
        layers.Conv2D(4, 1, name="branch1")(x),
        layers.Conv2D(6, 3, padding="same", name="branch3")(layers.Conv2D(4, 1, name="before3")(x)),
        layers.Conv2D(2, 1, name="pooled")(layers.MaxPooling2D(3, 1, padding="same")(x)),
    ]
    x = layers.Concatenate()(branches)
    x = x + layers.Conv2D(12, 1, name="shortcut")(inputs)
    return keras.Model(inputs, _head(layers.LeakyReLU()(x)), name="inception")


def squeeze_excite():
    """A depthwise convolution with two outputs a channel, and a gate of one number a channel, as in MobileNetV3."""
    inputs = keras.Input((SIZE, SIZE, 3))
    x = layers.Conv2D(6, 1, name="expand")(inputs)
    x = layers.BatchNormalization()(layers.DepthwiseConv2D(3, depth_multiplier=2, name="depthwise")(x))
    gate = layers.Reshape((1, 1, 12))(layers.GlobalAveragePooling2D()(x))
    gate = layers.Conv2D(4, 1, activation="relu", name="squeeze")(gate)
    gate = layers.Conv2D(12, 1, activation="hard_sigmoid", name="excite")(gate)
    return keras.Model(inputs, _head(layers.Multiply()([x, gate])), name="squeeze_excite")


def flattened():
    """Each channel is many inputs of the Dense layer behind the Flatten."""
    return keras.Sequential(
        [
            keras.Input((SIZE, SIZE, 3)),
            layers.Conv2D(6, 3, activation="relu", name="conv"),
            layers.MaxPooling2D(2),
            layers.Flatten(),
            layers.Dense(10, activation="relu", name="hidden"),
            layers.Dense(5, activation="softmax", name="head"),
        ],
        name="flattened",
    )


def grouped():
    """A convolution in groups, whose groups must stay of one size."""
    inputs = keras.Input((SIZE, SIZE, 3))
    x = layers.Conv2D(16, 1, name="stem")(inputs)
    x = layers.Conv2D(24, 3, groups=4, name="groups")(x)
    x = layers.Conv2D(24, 3, groups=24, name="depthwise")(layers.ReLU()(x))
    return keras.Model(inputs, _head(layers.PReLU(shared_axes=[1, 2])(x)), name="grouped")


def shared():
    """One layer, and one model, for two branches."""
    inputs = keras.Input((SIZE, SIZE, 3))
    twice = layers.Conv2D(8, 3, padding="same", name="twice")
    inner = keras.Sequential([keras.Input((SIZE, SIZE, 6)), layers.Conv2D(4, 1, name="within")], name="inner")
    first, second = layers.Conv2D(6, 1, name="first")(inputs), layers.Conv2D(6, 1, name="second")(inputs)
    x = layers.Concatenate()([twice(first), twice(second), inner(first), inner(second)])
    return keras.Model(inputs, _head(x), name="shared")


def attention():
    """Attention and a Dense block around residual sums, as in a vision transformer."""
    inputs = keras.Input((SIZE, SIZE, 3))
    x = layers.Reshape((9, 16))(layers.Conv2D(16, 4, strides=4, name="patches")(inputs))
    y = layers.LayerNormalization(name="before")(x)
    x = layers.Add()([x, layers.MultiHeadAttention(2, 4, name="attention")(y, y)])
    y = layers.Dense(32, activation="gelu", name="widen")(layers.LayerNormalization()(x))
    x = layers.Add()([x, layers.Dense(16, name="narrow")(y)])
    x = layers.GlobalAveragePooling1D()(layers.GroupNormalization(4, name="groups")(x))
    return keras.Model(inputs, layers.Dense(5, activation="softmax")(x), name="attention")


def captions():
    """Vectors of tokens that were found before, attention by keywords with a stream of fixed width, an LSTM."""
    inputs = keras.Input((SIZE,), dtype="int32")
    table = keras.initializers.Constant(np.random.default_rng(0).normal(size=(20, 16)))
    x = layers.Embedding(20, 16, embeddings_initializer=table, name="tokens")(inputs)
    fixed = x + np.linspace(0, 1, SIZE * 16, dtype="float32").reshape(SIZE, 16)
    y = layers.Dense(16, name="before")(fixed)
    x = layers.Add()([fixed, layers.MultiHeadAttention(2, 4, name="attention")(query=y, value=y)])
    y = layers.MultiHeadAttention(2, 4, name="second")(query=layers.Dense(10, name="words")(x), value=y)
    x = layers.Bidirectional(layers.LSTM(4, return_sequences=True))(layers.Dense(12, name="after")(y))
    return keras.Model(inputs, layers.Dense(5, activation="softmax", name="head")(x[:, -1]), name="captions")


def split_in_two():
    """Halves that go two ways, a gate by powers and comparisons, and a slice."""
    inputs = keras.Input((SIZE, SIZE, 3))
    x = layers.Conv2D(8, 1, name="stem")(inputs)
    first, second = keras.ops.split(x, 2, axis=-1)
    x = keras.ops.where(second > 0.1, first**2, keras.ops.abs(second))
    x = layers.AdaptiveAveragePooling2D(4)(layers.Conv2D(6, 1, name="after")(x))
    x = keras.ops.squeeze(keras.ops.expand_dims(x[:, 1:, 0], 1), 1)
    x = layers.Conv1D(6, 1, name="last")(x)
    return keras.Model(inputs, layers.Dense(5)(layers.GlobalMaxPooling1D()(x)), name="split_in_two")


def _head(x):
    x = layers.GlobalAveragePooling2D()(x)
    return layers.Dense(5, activation="softmax", name="head")(layers.Dropout(0.2)(x))


NETS = {make.__name__: make for make in (residual, dense_blocks, inception, squeeze_excite, flattened, grouped, shared)}
"""Nets that normalise nothing over channels."""

OF_OPERATIONS = {make.__name__: make for make in (captions, split_in_two)}
"""Nets whose layers and operations are of no backend, and rarer."""
