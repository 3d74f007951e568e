"""Makes the modules of this folder and of benchmarks/ importable, which `--import-mode=importlib` leaves out; and
fixtures that several files share."""

import gc
import os
import signal
import sys
from pathlib import Path

import pytest

# A shell that starts tests in the background has them ignore Ctrl-C, and processes inherit that: here it is tested.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent / "benchmarks")]


@pytest.fixture
def never_collected(monkeypatch):
    """Cycles stay, in a real step on PyTorch and in the traced one."""
    from fitroom.backends.torch import collector

    monkeypatch.setattr(collector, "CALLS_A_COLLECTION", 10**6)
    gc.collect()
    gc.disable()
    yield
    gc.enable()


_LONGEST = (
    *("test_step.py", "test_fit_under_pressure.py", "test_plan_in_fit.py", "test_demo.py"),
    *("test_tensorflow_step.py", "test_fit.py"),
)


def pytest_collection_modifyitems(items):
    """The longest come first: one at the end would leave the other cores idle."""
    items.sort(key=lambda item: item.path.name not in _LONGEST)


@pytest.fixture
def loops_as_on_a_card(monkeypatch):
    """On a CPU JAX would have the parts of a batch follow each other; on a card they run in a loop."""
    if os.environ.get("KERAS_BACKEND") == "jax":
        monkeypatch.setattr("fitroom.backends.jax.stepper.MOST_UNROLLED", 0)
