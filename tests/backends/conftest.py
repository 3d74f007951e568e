"""The environment of the backend under test, set before Keras is imported: the one that KERAS_BACKEND names.

Where the variable is not set it is the first backend that is installed.
"""

import gc
import os
import shutil
import tempfile

import pytest

from fitroom.backends.choose import choose_backend
from processes import LIMITED_CPU, QUICK_COMPILING
from ready_compiler import ReadyCompiler

BACKEND = os.environ["KERAS_BACKEND"] = choose_backend(None)
HOME = tempfile.mkdtemp(prefix="fitroom-tests-")
QUICK = {
    "CUDA_VISIBLE_DEVICES": "",
    "FITROOM_CACHE_DIR": f"{HOME}/cache",
    "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",  # small programs, each run a few times: most of the time is compiling
    "JAX_PLATFORMS": "cpu",
    "JAX_TRACEBACK_IN_LOCATIONS_LIMIT": "0",  # pytest's stack is deep, and each operation would have it
    "KERAS_HOME": f"{HOME}/keras",
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "XLA_FLAGS": QUICK_COMPILING,
}
# TensorFlow counts memory on the CPU where its allocator is that of cards. No test here needs more than the limit.
COUNTED = LIMITED_CPU | {"TF_CPU_BFC_MEM_LIMIT_IN_MB": "1500"}
TWO_CPUS = {"XLA_FLAGS": f"{QUICK_COMPILING} --xla_force_host_platform_device_count=2"}
# What is compiled again after its program was dropped, or for another model of the same form, is read from the disk.
KEPT_PROGRAMS = {
    "JAX_COMPILATION_CACHE_DIR": f"{HOME}/programs",
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
}
os.environ.update(QUICK | {"tensorflow": COUNTED, "jax": TWO_CPUS | KEPT_PROGRAMS}.get(BACKEND, {}))
if BACKEND == "tensorflow":
    import tensorflow as tf

    # A second CPU stands for a card, or for a second one. It has to be asked for before TensorFlow starts.
    [cpu] = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)

collect_ignore = [name for name in ("jax", "tensorflow", "torch") if name != BACKEND]


def pytest_unconfigure():
    shutil.rmtree(HOME, ignore_errors=True)


def pytest_report_header():
    return f"KERAS_BACKEND={BACKEND}"


@pytest.hookimpl(tryfirst=True)  # before `-m` selects
def pytest_collection_modifyitems(items):
    for item in items:
        names = [name for mark in item.iter_markers("quick_on") for name in mark.args]
        if names and BACKEND not in names:
            item.add_marker(pytest.mark.slow)
    # They look at all objects of the process: first, while there are few.
    items.sort(key=lambda item: item.path.name not in ("test_leaks.py", "test_fresh.py"))


def pytest_runtest_setup(item):
    names = [name for mark in item.iter_markers("backends") for name in mark.args]
    if names and BACKEND not in names:
        pytest.skip(f"about {', '.join(names)}")


@pytest.fixture(scope="module", autouse=True)
def nothing_left_behind():
    """The models of one file are collected before the next.

    What is there before a file, a million objects of the frameworks, is not looked at in the collections of its tests:
    of those there are many, and each would take half a second.
    """
    gc.freeze()
    yield
    gc.collect()


@pytest.fixture(scope="module")
def unfrozen(nothing_left_behind):
    """For tests of what is found among all objects: the collector lists none that is frozen."""
    gc.unfreeze()


@pytest.fixture(scope="session", autouse=True)
def compiler_in_forks():
    """XLA's GPU compiler does not import JAX anew for each step; tests/commands has it as users do."""
    compiler = ReadyCompiler()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fitroom.backends.xla.process._start", compiler.begin)
        yield
    compiler.end()


@pytest.fixture(scope="module", autouse=True)
def few_traced_steps(request):
    """On PyTorch a small model is traced in eight steps, until collections repeat; two find nearly the same peak.

    tests/backends/torch, where peaks are compared with real ones, has all of them.
    """
    with pytest.MonkeyPatch.context() as patch:
        if BACKEND == "torch" and request.path.parent.name != "torch":
            patch.setattr("fitroom.backends.torch.trace.collector._MOST_STEPS", 0)
        yield


@pytest.fixture
def never_collected(monkeypatch):
    """Cycles stay, in a real step on PyTorch and in the traced one."""
    from fitroom.backends.torch.trace import collector

    monkeypatch.setattr(collector, "WALKS_A_COLLECTION", 10**9)
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.fixture
def loops_as_on_a_card(monkeypatch):
    """On a CPU JAX would have the parts of a batch follow each other; on a card they run in a loop."""
    if BACKEND == "jax":
        monkeypatch.setattr("fitroom.backends.jax.train.stepper.MOST_UNROLLED", 0)
