"""Small models and batches in which a loss, an optimizer or a layer could go wrong when a batch is cut."""

import re
from collections.abc import Callable
from dataclasses import dataclass

import keras
import numpy as np
import pytest
from keras import layers, losses, ops, optimizers, regularizers

from fitroom.batch import Batch

FIRST, LATER = 20, 11
"""The samples of a batch, and of a short last one."""

MICRO_BATCHES = {1: 20, 2: 10, 3: 7, 7: 3}
"""By the number of parts into which they cut the first batch: 20, 10 + 10, 7 + 7 + 6, six times 3 and 2."""


@dataclass(frozen=True, kw_only=True)
class Case:
    make: Callable[[], keras.Model]
    data: Callable[[int], Batch]
    short_last: bool = False
    """Whether it is checked in every cut and with a short last batch; else in two cuts, which compiles less."""

    rtol: float = 2e-4
    atol: float = 2e-6

    def batches(self) -> tuple[Batch, Batch]:
        later = LATER if self.short_last else FIRST
        whole = self.data(FIRST + later)
        return whole.slice(0, FIRST), whole.slice(FIRST, FIRST + later)


def compiled(head, *, kind=keras.Model, **arguments) -> keras.Model:
    """A model of six numbers, with the same weights each time."""
    keras.utils.set_random_seed(7)
    inputs = keras.Input((6,))
    model = kind(inputs, head(inputs))
    model.compile(**{"optimizer": optimizers.SGD(0.1, momentum=0.9)} | arguments)
    return model


def dense(*, kind=keras.Model, first=None, last=None, **arguments) -> keras.Model:
    """Two layers, for three numbers."""

    def head(x):
        x = layers.Dense(8, activation="tanh", name="first", **first or {})(x)
        return layers.Dense(3, name="last", dtype="float32", **last or {})(x)

    return compiled(head, kind=kind, **{"loss": "mse"} | arguments)


def classifier(**arguments) -> keras.Model:
    loss = losses.SparseCategoricalCrossentropy(from_logits=True)
    return dense(**{"loss": loss, "metrics": ["accuracy"]} | arguments)


def dense_batch(size: int) -> Batch:
    random = np.random.default_rng(1)
    return Batch(x=random.normal(size=(size, 6)).astype("float32"), y=random.random((size, 3)).astype("float32"))


def labels(size: int) -> Batch:
    return Batch(x=dense_batch(size).x, y=np.random.default_rng(2).integers(0, 3, size).astype("int32"))


def weights(size: int) -> np.ndarray:
    """Very unequal, so that parts differ in what they weigh; some are nothing."""
    drawn = np.random.default_rng(3).exponential(size=size).astype("float32") ** 2
    drawn[::5] = 0
    return drawn


def weighted(data: Callable[[int], Batch]) -> Callable[[int], Batch]:
    def with_weights(size: int) -> Batch:
        batch = data(size)
        return Batch(x=batch.x, y=batch.y, sample_weight=weights(size))

    return with_weights


def tagger(*, recurrent: bool = True, **arguments) -> keras.Model:
    """A class for every word; padding is masked. Loops over words take long to compile."""
    keras.utils.set_random_seed(7)
    inputs = keras.Input((5,), dtype="int32")
    x = layers.Embedding(9, 4, mask_zero=True)(inputs)
    head = layers.Dense(3, activation="softmax")
    if recurrent:
        x, head = layers.SimpleRNN(4, return_sequences=True)(x), layers.TimeDistributed(head)
    model = keras.Model(inputs, head(x))
    model.compile(
        **{"optimizer": optimizers.SGD(0.5), "loss": "sparse_categorical_crossentropy", "metrics": ["accuracy"]}
        | arguments
    )
    return model


def sentences(size: int) -> Batch:
    """Of one word to five: parts differ in how much of them is padding."""
    random = np.random.default_rng(4)
    words = random.integers(1, 9, (size, 5)).astype("int32")
    words[np.arange(5) >= 1 + (np.arange(size) // 4 % 5)[:, None]] = 0
    return Batch(x=words, y=random.integers(0, 3, (size, 5)).astype("int32"))


def weighted_words(size: int) -> Batch:
    batch = sentences(size)
    return Batch(x=batch.x, y=batch.y, sample_weight=weights(size * 5).reshape(size, 5))


def pixel_classifier(**arguments) -> keras.Model:
    return compiled(lambda x: layers.Reshape((2, 3))(layers.Dense(6)(x)), **arguments)


def pixels(size: int) -> Batch:
    """Class 0 is to be ignored: the first half of the samples has much of it."""
    random = np.random.default_rng(5)
    found = random.integers(0, 3, (size, 2)).astype("int32")
    found[: size // 2, 0] = 0
    return Batch(x=dense_batch(size).x, y=found)


def two_outputs(**arguments) -> keras.Model:
    keras.utils.set_random_seed(7)
    inputs = keras.Input((6,))
    x = layers.Dense(8, activation="tanh")(inputs)
    outputs = {"kind": layers.Dense(3, activation="softmax", name="kind")(x), "size": layers.Dense(1, name="size")(x)}
    model = keras.Model(inputs, outputs)
    model.compile(
        **{
            "optimizer": optimizers.SGD(0.1, momentum=0.9),
            "loss": {"kind": "sparse_categorical_crossentropy", "size": losses.MeanAbsoluteError(reduction="sum")},
            "loss_weights": {"kind": 0.7, "size": 0.02},
            "metrics": {"kind": ["accuracy"], "size": ["mae"]},
        }
        | arguments
    )
    return model


def two_targets(size: int) -> Batch:
    random = np.random.default_rng(6)
    kinds = random.integers(0, 3, size).astype("int32")
    return Batch(x=dense_batch(size).x, y={"kind": kinds, "size": random.random((size, 1)).astype("float32")})


def weights_for_two(size: int) -> Batch:
    batch = two_targets(size)
    return Batch(x=batch.x, y=batch.y, sample_weight={"kind": weights(size), "size": weights(size)[::-1].copy()})


def two_inputs() -> keras.Model:
    keras.utils.set_random_seed(7)
    inputs = {"left": keras.Input((6,), name="left"), "right": keras.Input((3,), name="right")}
    x = layers.Concatenate()([inputs["left"], layers.Dense(2)(inputs["right"])])
    model = keras.Model(inputs, layers.Dense(3)(x))
    model.compile(optimizers.Adam(0.01), "mse")
    return model


def two_arrays(size: int) -> Batch:
    batch = dense_batch(size)
    return Batch(x={"left": batch.x, "right": batch.y}, y=batch.y)


class Subclassed(keras.Model):
    """Has no weights before its first call."""

    def __init__(self):
        super().__init__()
        self.first = layers.Dense(8, activation="tanh")
        self.last = layers.Dense(3)

    def call(self, x):
        return self.last(self.first(x))


def subclassed() -> keras.Model:
    keras.utils.set_random_seed(7)
    model = Subclassed()
    model.compile(optimizers.Adam(0.01), "mse", metrics=["mae"])
    return model


def with_frozen_layer() -> keras.Model:
    model = dense()
    model.get_layer("first").trainable = False
    model.compile(optimizers.SGD(0.1, momentum=0.9), "mse")
    return model


def with_unused_weights() -> keras.Model:
    """Nothing is said about the second output, so that its layer gets no gradient."""
    keras.utils.set_random_seed(7)
    inputs = keras.Input((6,))
    x = layers.Dense(8, activation="tanh")(inputs)
    model = keras.Model(inputs, [layers.Dense(3, name="used")(x), layers.Dense(2, name="unused")(x)])
    model.compile(optimizers.SGD(0.1, momentum=0.9), ["mse", None])
    return model


def unused_target(size: int) -> Batch:
    batch = dense_batch(size)
    return Batch(x=batch.x, y=[batch.y, batch.y[:, :2]])


class AddsLoss(layers.Layer):
    def call(self, x):
        self.add_loss(0.1 * ops.mean(ops.square(x)))
        return x


def with_added_loss_only() -> keras.Model:
    return compiled(lambda x: layers.Dense(3)(AddsLoss()(layers.Dense(4)(x))), loss=None)


def without_targets(size: int) -> Batch:
    return Batch(x=dense_batch(size).x)


def in_mixed_precision() -> keras.Model:
    keras.config.set_dtype_policy("mixed_float16")
    try:
        model = dense(optimizer=optimizers.LossScaleOptimizer(optimizers.SGD(0.1), initial_scale=256.0))
    finally:
        keras.config.set_dtype_policy("float32")
    return model


def mean_of_all(y_true, y_pred):
    return ops.mean(ops.abs(y_true - y_pred))


def mean_of_each(y_true, y_pred):
    return ops.mean(ops.square(y_true - y_pred), axis=-1) ** 0.7


def sum_of_all(y_true, y_pred):
    return 0.01 * ops.sum(ops.square(y_true - y_pred))


def halved_every_step() -> optimizers.Optimizer:
    return optimizers.SGD(optimizers.schedules.ExponentialDecay(0.2, decay_steps=1, decay_rate=0.5, staircase=True))


def case(make, data, **options) -> Case:
    return Case(make=make, data=data, **options)


def core(make, data) -> Case:
    return case(make, data, short_last=True)


CASES = {
    "plain": core(classifier, labels),
    "adam": case(lambda: classifier(optimizer=optimizers.Adam(0.01)), labels),
    "sample weights": core(lambda: classifier(weighted_metrics=["accuracy"]), weighted(labels)),
    "mean_with_sample_weight": core(
        lambda: dense(loss=losses.MeanSquaredError(reduction="mean_with_sample_weight")), weighted(dense_batch)
    ),
    "sum": core(lambda: dense(loss=losses.MeanSquaredError(reduction="sum"), optimizer="sgd"), dense_batch),
    "sum with weights": case(
        lambda: dense(loss=losses.MeanSquaredError(reduction="sum"), optimizer="sgd"), weighted(dense_batch)
    ),
    "masks": core(tagger, sentences),
    "masks and weights": case(lambda: tagger(recurrent=False, metrics=[]), weighted_words),
    "masks, mean_with_sample_weight": case(
        lambda: tagger(
            recurrent=False,
            metrics=[],
            loss=losses.SparseCategoricalCrossentropy(reduction="mean_with_sample_weight"),
        ),
        weighted_words,
    ),
    "ignore_class": core(
        lambda: pixel_classifier(loss=losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=0)), pixels
    ),
    "clipnorm": case(lambda: dense(optimizer=optimizers.SGD(0.1, clipnorm=0.05)), dense_batch),
    "global_clipnorm": case(lambda: dense(optimizer=optimizers.SGD(0.1, global_clipnorm=0.05)), dense_batch),
    "clipvalue": case(lambda: dense(optimizer=optimizers.SGD(0.1, clipvalue=0.01)), dense_batch),
    "adamw": case(lambda: dense(optimizer=optimizers.AdamW(0.01, weight_decay=0.1)), dense_batch),
    "averages": case(
        lambda: dense(optimizer=optimizers.SGD(0.1, use_ema=True, ema_momentum=0.8, ema_overwrite_frequency=2)),
        dense_batch,
    ),
    "schedule": case(lambda: dense(optimizer=halved_every_step()), dense_batch),
    "weight regularizer": case(
        lambda: dense(first={"kernel_regularizer": regularizers.L2(0.3)}, optimizer="sgd"), dense_batch
    ),
    "activity regularizer": core(
        lambda: dense(first={"activity_regularizer": regularizers.L2(0.3)}, optimizer="sgd"), dense_batch
    ),
    "added loss only": case(with_added_loss_only, without_targets),
    "constraint": case(lambda: dense(first={"kernel_constraint": keras.constraints.MaxNorm(0.5)}), dense_batch),
    "two outputs": case(two_outputs, two_targets),
    "two outputs, weighted": core(two_outputs, weights_for_two),
    "two inputs": case(two_inputs, two_arrays),
    "subclassed": case(subclassed, dense_batch),
    "frozen layer": case(with_frozen_layer, dense_batch),
    "weights without gradient": case(with_unused_weights, unused_target),
    "mixed precision": case(in_mixed_precision, dense_batch, rtol=5e-3, atol=5e-4),
    "own loss, mean of all": case(lambda: dense(loss=mean_of_all), dense_batch),
    "own loss, of each": case(lambda: dense(loss=mean_of_each), dense_batch),
    "own loss, of each, weighted": case(lambda: dense(loss=mean_of_each), weighted(dense_batch)),
    "own loss, sum": case(lambda: dense(loss=sum_of_all), dense_batch),
    "dice of each": case(lambda: dense(loss=losses.Dice(axis=(1,))), dense_batch),
}


def state_of(model: keras.Model, *, metrics: bool = True) -> dict[str, np.ndarray]:
    """Every variable that a step may change, under a name that a twin shares."""
    groups = {"weights": model.variables, "optimizer": model.optimizer.variables}
    if metrics:
        groups["metrics"] = model.metrics_variables
    return {
        f"{group} {number} {without_numbers(variable.name)}": np.array(keras.ops.convert_to_numpy(variable))
        for group, variables in groups.items()
        for number, variable in enumerate(variables)
    }


def without_numbers(name: str) -> str:
    return re.sub(r"_\d+", "", name)


_USUAL = ("plain", "sample weights")
CUTS = [
    pytest.param(
        name,
        parts,
        # Most of the time goes to compiling each number of parts: few cases are quick enough to check in all.
        marks=[] if parts == 3 or (CASES[name].short_last and name in _USUAL) else pytest.mark.slow,
    )
    for name in CASES
    for parts in (MICRO_BATCHES if CASES[name].short_last else (3, 7))
]
"""Cases and the numbers of parts in which they are checked."""
