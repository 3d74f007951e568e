"""Models whose steps fail at a planted place: in the forward pass, the backward pass, the update or a metric.

The error comes at the place and time at which the framework itself is at work there, compiled or not.
"""

import keras
import numpy as np
import pytest
from keras import layers, ops

from step_cases import FIRST, dense_batch, state_of
from step_comparison import assert_identical, numbers, step_of

PARTS_OF_SEVEN, WHOLE = 7, FIRST


class Fuse:
    """Blows at its n-th use since it was lit, whatever the framework does with it meanwhile."""

    def __init__(self):
        self.left = None

    def light(self, uses):
        self.left = uses

    def use(self):
        if self.left is not None:
            self.left -= 1
            if self.left == 0:
                self.left = None
                raise RuntimeError("planted")


FUSE = Fuse()


def planted(tensor):
    """Zero, found while the program runs: or the error."""
    value = ops.stop_gradient(ops.sum(ops.cast(tensor, "float32")))
    if keras.config.backend() == "torch":
        FUSE.use()
        return value * 0

    def use(_):
        FUSE.use()
        return np.float32(0)

    if keras.config.backend() == "jax":
        import jax

        return jax.pure_callback(use, jax.ShapeDtypeStruct((), "float32"), value)
    import tensorflow as tf

    zero = tf.numpy_function(use, [value], tf.float32)
    zero.set_shape(())
    return zero


class InForward(layers.Layer):
    def call(self, x):
        return x + planted(x)


class InBackward(layers.Layer):
    def call(self, x):
        @ops.custom_gradient
        def same(x):
            def gradient(*arguments, upstream=None):
                upstream = arguments[0] if upstream is None else upstream
                return upstream + planted(upstream)

            return x * 1.0, gradient

        return same(x)


class InUpdate(keras.optimizers.Optimizer):
    """Momentum, one weight after the other: at the second the first is changed already."""

    def build(self, variables):
        super().build(variables)
        self.momenta = self.add_optimizer_variables(variables, "momentum")

    def update_step(self, gradient, variable, learning_rate):
        momentum = self.momenta[self._get_variable_index(variable)]
        self.assign(momentum, 0.9 * momentum + gradient + ops.cast(planted(gradient), gradient.dtype))
        self.assign_sub(variable, ops.cast(learning_rate, variable.dtype) * momentum)


class InMetric(keras.metrics.Mean):
    def update_state(self, y_true, y_pred, sample_weight=None):
        super().update_state(ops.abs(y_true - y_pred) + planted(y_pred), sample_weight)


PLACES = ("forward", "backward", "update", "metric")


def model_with_fuse(place):
    """With all that a step changes: weights, an optimizer, statistics, seeds, metrics, losses of layers."""
    keras.utils.set_random_seed(7)
    FUSE.light(None)
    inputs = keras.Input((6,))
    x = layers.BatchNormalization()(inputs)
    x = layers.Dense(8, activation="tanh", activity_regularizer="l2")(x)
    x = layers.Dropout(0.4, seed=3)(layers.Dropout(0.1)(x))
    if place == "forward":
        x = InForward()(x)
    if place == "backward":
        x = InBackward()(x)
    model = keras.Model(inputs, layers.Dense(3)(x))
    optimizer = InUpdate(0.1) if place == "update" else keras.optimizers.SGD(0.01, momentum=0.9)
    metrics = ["mae", InMetric(name="own")] if place == "metric" else ["mae"]
    model.compile(optimizer, "mse", metrics=metrics, jit_compile=keras.config.backend() == "jax")
    return model


def check_that_a_failed_step_leaves_every_bit(place, micro_batch):
    """A step fails and changes nothing; done again, it is the step of a twin that never failed."""
    batches = [dense_batch(2 * FIRST).slice(0, FIRST), dense_batch(2 * FIRST).slice(FIRST, 2 * FIRST)]
    twin = model_with_fuse(place)
    stepper = step_of(twin)
    expected_logs = [numbers(stepper.train(batch, micro_batch)) for batch in batches]
    expected = state_of(twin)

    model = model_with_fuse(place)
    stepper = step_of(model)
    logs = [numbers(stepper.train(batches[0], micro_batch))]
    before = state_of(model)
    # At the second part, or at the second weight.
    FUSE.light(1 if micro_batch == WHOLE and place != "update" else 2)
    with pytest.raises(Exception, match="planted"):
        stepper.train(batches[1], micro_batch)
    assert FUSE.left is None
    assert_identical(state_of(model), before)
    logs.append(numbers(stepper.train(batches[1], micro_batch)))
    assert_identical(state_of(model), expected)
    assert logs == expected_logs
