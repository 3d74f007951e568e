"""What all tests share: Ctrl-C, and global state of Keras and of fitroom that no test leaves to the next."""

import atexit
import gc
import os
import signal
import sys
from pathlib import Path

import pytest

from ready_process import end_processes

pytest_plugins = ("cpu_seconds",)

# A shell that starts tests in the background has them ignore Ctrl-C, and processes inherit that: here it is tested.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# All processes that tests start, and this one, look at the frameworks' half a million objects less often.
QUICK_PYTHON = str(Path(__file__).with_name("helpers") / "quick_python")
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (QUICK_PYTHON, os.environ.get("PYTHONPATH"))))
atexit.register(gc.freeze)


@pytest.fixture(scope="session", autouse=True)
def ready_processes():
    """Processes that commands are forked from last as long as the tests."""
    yield
    end_processes()


@pytest.fixture(autouse=True)
def keras_as_it_was():
    """Keras's policy, float type and methods are after each test what they were; nothing where it is not imported."""
    keras = sys.modules.get("keras")
    if keras is None:
        yield
        return
    policy, floatx = keras.config.dtype_policy(), keras.config.floatx()
    yield
    if keras.config.floatx() != floatx:
        keras.config.set_floatx(floatx)
    if keras.config.dtype_policy() != policy:
        keras.config.set_dtype_policy(policy)
    if "fitroom.train.protect" in sys.modules:
        from fitroom.train.protect import unprotect

        unprotect()
