"""Every backend keeps the contract: the three frameworks, each in a process of its own, and the fake."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from fitroom.cards.catalogue import find_card
from fitroom.memory.step import StepRequest
from fitroom.memory.timeline import Buffer, Moment, Timeline

from fitroom.backends.choose import installed_backends
from fitroom.backends.fake.backend import FakeBackend
from fitroom.backends.fake.out_of_memory import FakeOutOfMemoryError
from fitroom.recipe import Recipe

TESTS = Path(__file__).parent

# oneDNN's kernels go on after a failed allocation and crash the process; TensorFlow's own raise.
LIMITED_CPU = {
    "TF_CPU_ALLOCATOR_USE_BFC": "true",
    "TF_CPU_BFC_MEM_LIMIT_IN_MB": "400",
    "TF_ENABLE_ONEDNN_OPTS": "0",
    "CUDA_VISIBLE_DEVICES": "",
}


QUICK_COMPILING = " ".join(
    (
        "--xla_backend_optimization_level=0",
        "--xla_llvm_disable_expensive_passes=true",
        "--xla_cpu_use_fusion_emitters=false",
    )
)
"""Most of what tests on JAX take is compiling for the CPU; how fast it then runs is of no account."""


def run_python(arguments: list[str], *, backend: str, keras_home: Path, **environment: str) -> str:
    """Run Python with a Keras backend; what it prints is the answer, or the reason why the test fails."""
    unset = ("TF_CPU_ALLOCATOR_USE_BFC", "TF_CPU_BFC_MEM_LIMIT_IN_MB", "TF_ENABLE_ONEDNN_OPTS")
    inherited = {name: value for name, value in os.environ.items() if name not in unset}
    done = subprocess.run(
        [sys.executable, *arguments],
        env=inherited
        | {"BACKEND_TO_CHECK": backend, "KERAS_BACKEND": backend, "KERAS_HOME": str(keras_home)}
        | {"TF_CPP_MIN_LOG_LEVEL": "3"}
        | {"XLA_FLAGS": QUICK_COMPILING}
        | environment,
        cwd=TESTS.parent,
        capture_output=True,
        text=True,
        timeout=900,
    )
    if done.returncode:
        pytest.fail(f"{backend}: exit {done.returncode}\n{done.stdout[-8000:]}\n{done.stderr[-4000:]}", pytrace=False)
    return done.stdout


def run_checks(files: list[str], *, backend: str, keras_home: Path, **environment: str) -> None:
    pytest_here = ["-m", "pytest", "-p", "no:cacheprovider", "-p", "no:randomly", "--tb=short"]
    paths = [str(TESTS / file) for file in files]
    run_python([*pytest_here, *paths], backend=backend, keras_home=keras_home, **environment)


def needs(backend: str) -> None:
    if backend not in (*installed_backends(), "fake"):
        pytest.skip(f"{backend} is not installed")


@pytest.mark.parametrize("backend", ["fake", "jax", "tensorflow", "torch"])
def test_backend_keeps_the_contract(backend, tmp_path):
    needs(backend)
    run_checks(["contract_checks.py"], backend=backend, keras_home=tmp_path)


def test_tensorflow_counts_and_dies_for_real_under_a_limit(tmp_path):
    needs("tensorflow")
    run_checks(["tensorflow_pressure_checks.py"], backend="tensorflow", keras_home=tmp_path, **LIMITED_CPU)


def test_tensorflow_reads_unknown_where_its_allocator_does_not_count(tmp_path):
    needs("tensorflow")
    program = """
from fitroom.backends.choose import load_backend
backend = load_backend("tensorflow")
cpu = backend.devices()[-1]
backend.reset_peak(cpu)
print(backend.read_memory(cpu))
"""
    plain_cpu = {"TF_ENABLE_ONEDNN_OPTS": "0", "CUDA_VISIBLE_DEVICES": ""}
    printed = run_python(["-c", program], backend="tensorflow", keras_home=tmp_path, **plain_cpu)
    assert printed.strip() == (
        "MemoryReading(in_use_bytes=None, peak_bytes=None, reserved_bytes=None, limit_bytes=None)"
    )


def test_the_fake_runs_out_at_its_capacity_and_not_before():
    backend = FakeBackend(capacity_bytes=100)
    first = backend.allocate(60)
    with pytest.raises(FakeOutOfMemoryError, match="60 of 100"):
        backend.allocate(41)
    backend.allocate(40)
    backend.free(first)
    backend.allocate(60)


def test_the_fake_step_grows_with_the_micro_batch_alone():
    card = find_card("T4")  # any: the fake does not look at it
    timeline = Timeline(
        buffers=(
            Buffer(size_bytes=1000, kind="weights", layer="dense", first=0, last=0),
            Buffer(size_bytes=10, kind="activations", layer="dense", first=0, last=0),
        ),
        moments=(Moment(name="dense", layer="dense", phase="forward"),),
    )
    backend = FakeBackend(capacity_bytes=5000, timeline=timeline)
    whole = backend.trace(None, StepRequest(batch_size=64, card=card))
    quarters = backend.trace(
        None, StepRequest(batch_size=64, card=card, recipe=Recipe(keras_accumulation=4), limit_bytes=2000)
    )
    assert (whole.required_bytes, whole.limit_bytes) == (1640, 5000)
    assert (quarters.required_bytes, quarters.limit_bytes) == (1160, 2000)
