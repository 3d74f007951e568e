"""A model that recomputes parts of itself trains as it does without: on the backend that KERAS_BACKEND names.

Run by test_remat.py, a process a backend. Models are trained beside twins that Keras trains by itself.
"""

import keras
import numpy as np
import pytest

import fitroom
from fitroom.backends.choose import current_backend
from fitroom.remat.graph import layer_graph
from remat_cases import CASES, pictures
from step_cases import state_of


def in_threes(model):
    """Segments of three calls, one after another, wherever that cuts."""
    calls = layer_graph(model).calls
    starts = range(0, len(calls) - 1, 3)
    return fitroom.Remat(segments=[(calls[n].name, calls[min(n + 2, len(calls) - 1)].name) for n in starts])


def trained(model, remat, micro_batch=None, steps=2):
    stepper, batch, logs = current_backend().stepper(model, jit=None, remat=remat), pictures(), []
    for _ in range(steps):
        model.reset_metrics()
        logs.append(stepper.train(batch, micro_batch or batch.size))
    return [{name: float(keras.ops.convert_to_numpy(value)) for name, value in log.items()} for log in logs]


def assert_close(found, expected, case):
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=case.rtol, atol=case.atol, err_msg=name)


@pytest.mark.parametrize("name", CASES)
def test_two_updates_are_those_of_plain_training(name):
    case = CASES[name]
    model, twin = case.make(), case.make()
    expected = trained(twin, None)
    for found, wanted in zip(trained(model, in_threes(model)), expected, strict=True):
        assert_close(found, wanted, case)
    assert_close(state_of(model), state_of(twin), case)
