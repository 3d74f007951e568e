"""`import fitroom` is quick and leaves the choice of a framework open."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import fitroom

FRAMEWORKS = ("keras", "jax", "jaxlib", "tensorflow", "torch", "numpy", "matplotlib")
SUBPACKAGES = {path.stem for path in Path(fitroom.__file__).parent.iterdir() if path.stem != "__init__"}


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


def test_the_public_names_are_these():
    public = {name for name in vars(fitroom) if not name.startswith("_") and name not in SUBPACKAGES}
    assert public == {
        "BackendError",
        "Budget",
        "Card",
        "CompilerError",
        "Diagnosis",
        "Estimate",
        "Finding",
        "Explanation",
        "FitroomError",
        "HostMemoryError",
        "InputError",
        "Leaks",
        "MissingExtraError",
        "MaxBatch",
        "ModelError",
        "NothingFitsError",
        "OutOfMemoryError",
        "Plan",
        "Recipe",
        "Remat",
        "Run",
        "Round",
        "RunInterrupted",
        "PeerError",
        "StateLostError",
        "Step",
        "Timeline",
        "Trial",
        "Trials",
        "UnknownNameError",
        "doctor",
        "estimate",
        "explain",
        "find_card",
        "fit",
        "freeze",
        "move_augmentation",
        "Augmentation",
        "isolate_objective",
        "isolate_tuner",
        "fresh",
        "leaks",
        "max_batch",
        "open_run",
        "plan",
        "devices",
        "protect",
        "watch",
        "trials",
    }


def test_no_extra_bounds_a_backend_so_that_a_cuda_build_beside_it_stays():
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    for backend in ("jax", "tensorflow", "torch"):
        assert extras[backend] == [backend]
    brought = " ".join(project["dependencies"])
    assert not any(backend in brought for backend in ("jax", "tensorflow", "torch"))
