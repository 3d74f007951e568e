"""A pytest plugin for Keras's own tests: its markers, and, on request, every model served by fitroom.

`FITROOM_SUITE=served` serves; the calls that were left to Keras are written, by reason, to `FITROOM_SUITE_CALLS`.
Keras's tests make models of its trainer class and a layer. Users' models are `keras.Model`s, so `Trainer` below stands
for that class in the tests' copies.
"""

import json
import os
import signal
import sys
from pathlib import Path

import keras
import pytest

_SERVED = os.environ.get("FITROOM_SUITE") == "served"
_SECONDS_A_TEST = 60
_DEVICES_WANTED = 4
_BACKEND_TRAINER = next(base for base in keras.Model.__mro__[1:] if base.__name__.endswith("Trainer"))


class Trainer(keras.Model):
    """Keras's trainer of this backend, as a model that brings no layers of its own."""

    def __init__(self, **layer_arguments):
        if not hasattr(self, "name"):  # called by a layer's own `__init__`, which it stands behind
            keras.layers.Layer.__init__(self, **layer_arguments)
        _BACKEND_TRAINER.__init__(self)


def skip_if_backend(given_backend, reason):
    """Keras's tests take this decorator from a conftest, which the installed Keras does not have."""
    return pytest.mark.skipif(keras.backend.backend() == given_backend, reason=reason)


sys.modules["conftest"] = sys.modules[__name__]


def pytest_configure(config):
    """Know Keras's markers; serve."""
    config.addinivalue_line("markers", "requires_trainable_backend: the backend can train")
    config.addinivalue_line("markers", "multi_device: needs several devices")
    if _SERVED:
        import fitroom

        fitroom.protect()


def pytest_collection_modifyitems(items):
    """Tests of several devices want four of JAX's; Keras's own runs leave them out where there are fewer, too."""
    if keras.backend.backend() == "jax" and len(keras.distribution.list_devices()) >= _DEVICES_WANTED:
        return
    for item in items:
        if item.get_closest_marker("multi_device"):
            item.add_marker(pytest.mark.skip(reason="needs several devices"))


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call(item):
    """End a test that hangs: forked workers of a dataset do so now and then, served or not."""

    def give_up(number, frame):
        raise TimeoutError(f"{item.name} took longer than {_SECONDS_A_TEST} s")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(_SECONDS_A_TEST)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def pytest_sessionfinish():
    """Write what was served and what was left to Keras."""
    if not _SERVED:
        return
    from fitroom.train.protect import CALLS

    rows = [{"method": call.method, "left_to_keras": call.left_to_keras, "calls": n} for call, n in CALLS.items()]
    Path(os.environ["FITROOM_SUITE_CALLS"]).write_text(json.dumps(rows))
