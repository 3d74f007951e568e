"""Child processes of tests: which backends there are, and Python with a backend and an environment of its own."""

import importlib.util
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from fitroom.backends.choose import installed_backends

ROOT = Path(__file__).parents[2]
"""The folder of the repository."""

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


def hide_tensorflow(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment of a process as if TensorFlow were not installed: else Keras imports it, for seconds."""
    hidden = str(Path(__file__).with_name("without_tensorflow"))
    path = os.pathsep.join(filter(None, (hidden, environment.get("PYTHONPATH"))))
    return {**environment, "PYTHONPATH": path}


def needs(backend: str) -> None:
    """Skip the test where a backend is not installed."""
    if backend not in installed_backends():
        pytest.skip(f"{backend} is not installed")


def needs_the_compiler() -> None:
    """Skip the test where XLA's GPU compiler is not installed."""
    needs("jax")
    if importlib.util.find_spec("jax_plugins") is None:
        pytest.skip("XLA's GPU compiler is not installed")


def run_python(arguments: list[str], *, backend: str, keras_home: Path, **environment: str) -> str:
    """Run Python with a Keras backend; what it prints is the answer, or the reason why the test fails."""
    unset = ("TF_CPU_ALLOCATOR_USE_BFC", "TF_CPU_BFC_MEM_LIMIT_IN_MB", "TF_ENABLE_ONEDNN_OPTS")
    inherited = {name: value for name, value in os.environ.items() if name not in unset}
    done = subprocess.run(
        [sys.executable, *arguments],
        env=inherited
        | {"KERAS_BACKEND": backend, "KERAS_HOME": str(keras_home)}
        | {"TF_CPP_MIN_LOG_LEVEL": "3"}
        | {"XLA_FLAGS": QUICK_COMPILING}
        | environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=900,
    )
    if done.returncode:
        pytest.fail(f"{backend}: exit {done.returncode}\n{done.stdout[-8000:]}\n{done.stderr[-4000:]}", pytrace=False)
    return done.stdout
