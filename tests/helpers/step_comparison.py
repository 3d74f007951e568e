"""Training steps of ours beside those of Keras, and what is compared of them."""

from functools import cache

import keras
import numpy as np

from fitroom.backends.choose import current_backend
from step_cases import CASES, state_of


class OwnStep(keras.Model):
    def train_step(self, *arguments):
        return super().train_step(*arguments)


def step_of(model):
    return current_backend().stepper(model, jit=None)


def numbers(logs):
    return {name: float(keras.ops.convert_to_numpy(value)) for name, value in logs.items()}


def assert_close(found, expected, *, rtol=2e-4, atol=2e-6):
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=rtol, atol=atol, err_msg=name)


def assert_identical(found, expected):
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)


def untraced(model):
    """The model, which Keras itself will run as it comes where tracing is most of the time, on TensorFlow."""
    if keras.config.backend() == "tensorflow":
        model.run_eagerly = True
    return model


def trained_by_keras(model, *batches, traced=False):
    """The logs of each batch, and the state at the end."""
    if not traced:
        untraced(model)
    logs = [model.train_on_batch(each.x, each.y, each.sample_weight, return_dict=True) for each in batches]
    return logs, state_of(model)


def trained_by_us(model, micro_batch, *batches):
    stepper, logs = step_of(model), []
    for batch in batches:
        model.reset_metrics()  # as `train_on_batch` does
        logs.append(numbers(stepper.train(batch, micro_batch)))
    return logs, state_of(model)


@cache
def expected_of(name):
    case = CASES[name]
    return trained_by_keras(case.make(), *case.batches())
