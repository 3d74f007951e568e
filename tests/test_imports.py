"""`import fitroom` is quick and leaves the choice of a framework open."""

import subprocess
import sys

import pytest

FRAMEWORKS = ("keras", "jax", "jaxlib", "tensorflow", "torch", "numpy", "matplotlib")


@pytest.mark.parametrize(
    "module",
    [
        "fitroom",
        "fitroom.cli.main",
        "fitroom.backends.contract",
        "fitroom.backends.choose",
        "fitroom.backends.fake.backend",
    ],
)
def test_importing_it_imports_no_framework(module):
    program = f"import sys, {module}; print(*(name for name in {FRAMEWORKS} if name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split() == []
