"""Makes the modules of this folder and of benchmarks/ importable, which `--import-mode=importlib` leaves out; and
fixtures that several files share."""

import gc
import os
import signal
import sys
from itertools import groupby
from pathlib import Path

import pytest

# A shell that starts tests in the background has them ignore Ctrl-C, and processes inherit that: here it is tested.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent / "benchmarks")]


@pytest.fixture
def never_collected(monkeypatch):
    """Cycles stay, in a real step on PyTorch and in the traced one."""
    from fitroom.backends.torch.trace import collector

    monkeypatch.setattr(collector, "CALLS_A_COLLECTION", 10**6)
    gc.collect()
    gc.disable()
    yield
    gc.enable()


_LONGEST_TOGETHER = ("test_fit_under_pressure.py", "test_tensorflow_step.py", "test_run_command.py")
"""Their tests share what takes long; mostly that is waiting, beside which others run."""

_LONGEST = (  # the longest first
    *_LONGEST_TOGETHER,
    *("test_step.py", "test_jax_step.py", "test_demo.py", "test_remat.py", "test_planning.py", "test_torch_step.py"),
    *("test_tensorflow_jitted.py", "test_torch_trace.py", "test_plan_in_fit.py", "test_kills.py", "test_run_state.py"),
    *("test_tensorflow_graph.py", "test_classify.py", "test_sources.py", "test_fit.py"),
)


def pytest_collection_modifyitems(items):
    """Every process begins with its share of the longest: one at the end would leave the other cores idle."""

    def unit_of(item):
        name = item.path.name
        return name if name in _LONGEST_TOGETHER else item.nodeid if name in _LONGEST else None

    num_processes = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    units = [list(unit) for name, unit in groupby(items, unit_of) if name]
    units.sort(key=lambda unit: _LONGEST.index(unit[0].path.name))
    others = [item for item in items if not unit_of(item)]
    left, items[:] = len(items), []
    for number in range(num_processes):  # each is given one stretch, of this length
        length = left // (num_processes - number)
        stretch = [item for unit in units[number::num_processes] for item in unit]
        missing = max(0, length - len(stretch))
        items += stretch + others[:missing]
        left, others = left - length, others[missing:]
    items += others


@pytest.fixture
def loops_as_on_a_card(monkeypatch):
    """On a CPU JAX would have the parts of a batch follow each other; on a card they run in a loop."""
    if os.environ.get("KERAS_BACKEND") == "jax":
        monkeypatch.setattr("fitroom.backends.jax.train.stepper.MOST_UNROLLED", 0)
