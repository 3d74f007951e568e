"""Small models that are each hard to recompute in their own way: their graphs, their state, their losses."""

from collections.abc import Callable
from dataclasses import dataclass

import keras
import numpy as np
from keras import layers, ops

from fitroom.batch import Batch

SAMPLES, SIZE, CLASSES = 8, 8, 3


@dataclass(frozen=True, kw_only=True)
class Case:
    make: Callable[[], keras.Model]
    data: Callable[[], Batch]
    rtol: float = 2e-4
    atol: float = 2e-6


def pictures() -> Batch:
    random = np.random.default_rng(1)
    return Batch(
        x=random.normal(size=(SAMPLES, SIZE, SIZE, 3)).astype("float32"),
        y=random.integers(0, CLASSES, SAMPLES).astype("int32"),
    )


def sentences() -> Batch:
    random = np.random.default_rng(2)
    words = random.integers(1, 9, (SAMPLES, 6)).astype("int32")
    words[:, 4:] *= random.integers(0, 2, (SAMPLES, 1))
    return Batch(x=words, y=random.integers(0, CLASSES, (SAMPLES, 6)).astype("int32"))


def classifier(body, *, inputs=None, optimizer=None) -> keras.Model:
    """A model of small pictures with some layers between its input and its classes."""
    inputs = keras.Input((SIZE, SIZE, 3)) if inputs is None else inputs
    x = layers.GlobalAveragePooling2D(name="pool")(body(inputs))
    outputs = layers.Dense(CLASSES, activation="softmax", dtype="float32", name="classes")(x)
    return compiled(keras.Model(inputs, outputs, name="model"), optimizer=optimizer)


def compiled(model, *, optimizer=None) -> keras.Model:
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


def residual(x):
    """With dropout, and weights that are to stay small."""
    x = block(x, "stem")
    for number in range(2):
        inner = block(x, f"block{number}", kernel_regularizer=keras.regularizers.L2(0.1))
        inner = layers.Dropout(0.5, name=f"drop{number}")(inner)
        x = layers.Add(name=f"add{number}")([x, inner])
    return x


def branches(x):
    """As in Inception, with activations that are to stay small."""
    for number in range(2):
        wide = block(x, f"wide{number}", activity_regularizer=keras.regularizers.L2(0.1))
        narrow = layers.Conv2D(4, 1, name=f"narrow{number}")(x)
        pooled = layers.MaxPooling2D(3, 1, padding="same", name=f"pooled{number}")(x)
        x = layers.Concatenate(name=f"joined{number}")([wide, narrow, pooled])
    return x


def skips(x):
    """As in DenseNet, each to all that follow; and one across everything, as in U-Net."""
    first = block(x, "first")
    x = first
    for number in range(3):
        x = layers.Concatenate(name=f"joined{number}")([x, block(x, f"block{number}", filters=3)])
    down = block(layers.MaxPooling2D(name="down")(x), "bottom")
    up = layers.UpSampling2D(name="up")(down)
    return ops.add(layers.Conv2D(4, 1, name="last")(layers.Concatenate(name="across")([up, x])), first)


def backbone_under_a_head():
    """A model in a model in a model; half of it frozen."""
    inner = keras.Sequential([layers.Conv2D(4, 3, name="conv"), layers.BatchNormalization(name="norm")], name="inner")
    inputs = keras.Input((SIZE, SIZE, 3), name="pictures")
    x = inner(block(block(inputs, "frozen"), "free"))
    backbone = keras.Model(inputs, layers.ReLU(name="relu")(x), name="backbone")
    backbone.get_layer("frozen_conv").trainable = backbone.get_layer("frozen_norm").trainable = False
    return classifier(lambda x: block(backbone(layers.Rescaling(2.0, name="rescaled")(x), training=False), "head"))


def in_precision(policy, **options):
    def make():
        before = keras.config.dtype_policy()
        keras.config.set_dtype_policy(policy)
        try:
            return classifier(residual, **options)
        finally:
            keras.config.set_dtype_policy(before)

    return make


def tagger():
    """A class for every word; padding is masked from the first layer to the loss."""
    inputs = keras.Input((6,), dtype="int32")
    x = layers.Embedding(9, 4, mask_zero=True, name="words")(inputs)
    x = layers.SimpleRNN(4, return_sequences=True, name="there")(x)
    x = layers.SimpleRNN(4, return_sequences=True, go_backwards=True, name="back")(x)
    return compiled(keras.Model(inputs, layers.Dense(CLASSES, activation="softmax", name="classes")(x)))


def twice_the_same():
    """Layers, and a model, that are called twice."""
    shared = layers.Conv2D(4, 3, padding="same", name="shared")
    norm = layers.BatchNormalization(name="norm")
    eyes = keras.Sequential([keras.Input((SIZE, SIZE, 4)), layers.Conv2D(2, 1, name="eye")], name="eyes")

    def body(x):
        one = norm(shared(x))
        other = norm(shared(layers.ReLU(name="relu")(ops.negative(x))))
        return layers.Multiply(name="both")([eyes(one), eyes(other)])

    return classifier(body)


class Block(layers.Layer):
    """Layers in a layer, which adds a loss."""

    def __init__(self, **options):
        super().__init__(**options)
        self.conv = layers.Conv2D(4, 3, padding="same", name="conv")
        self.norm = layers.BatchNormalization(name="norm")
        self.drop = layers.Dropout(0.5, name="drop")

    def build(self, shape):
        self.conv.build(shape)
        self.norm.build((*shape[:-1], 4))

    def call(self, x, training=None):
        x = self.drop(self.norm(self.conv(x), training=training), training=training)
        self.add_loss(0.1 * ops.mean(ops.square(x)))
        return ops.relu(x)


class Subclassed(keras.Model):
    """A model that runs code of its own."""

    def __init__(self):
        super().__init__(name="subclassed")
        inputs = keras.Input((SIZE, SIZE, 4))
        self.one, self.other = Block(name="one"), Block(name="other")
        self.functional = keras.Model(inputs, chain(inputs), name="functional")
        self.head = layers.Dense(CLASSES, activation="softmax", name="classes")

    def build(self, shape):
        self.one.build(shape)
        self.other.build((*shape[:-1], 4))
        self.head.build((None, 4))

    def call(self, x, training=None):
        x = self.functional(self.other(self.one(x, training=training), training=training), training=training)
        return self.head(ops.mean(x, axis=(1, 2)))


def subclassed():
    model = Subclassed()
    model.build((None, SIZE, SIZE, 3))
    return compiled(model)


def seeded(make):
    """The same weights, and the same dropout, each time."""

    def again():
        keras.utils.set_random_seed(7)
        return make()

    return again


CASES = {
    name: Case(make=seeded(make), data=data, **tolerance)
    for name, make, data, tolerance in (
        ("chain", lambda: classifier(chain), pictures, {}),
        ("residual, dropout, regularizer", lambda: classifier(residual), pictures, {}),
        ("branches, activity regularizer", lambda: classifier(branches), pictures, {}),
        ("skips", lambda: classifier(skips), pictures, {}),
        ("nested backbone", backbone_under_a_head, pictures, {}),
        ("mixed_bfloat16", in_precision("mixed_bfloat16"), pictures, {"rtol": 3e-2, "atol": 3e-3}),
        ("mixed_float16", in_precision("mixed_float16"), pictures, {"rtol": 4e-3, "atol": 4e-4}),
        ("masks", tagger, sentences, {}),
        ("twice the same", twice_the_same, pictures, {}),
        ("subclassed", subclassed, pictures, {}),
    )
}
