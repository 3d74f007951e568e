"""`fitroom.fit` with a plan, on the three backends and where memory really runs out."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from pressure import LIMIT_MB, SCRIPT, SUM_OF_NUMBERS, limited, trained
from test_backend_contract import needs, run_checks

CHECKS = ["plan_in_fit_checks.py", "precision_checks.py"]
# Small programs, each run a few times: quick to compile matters, not quick to run.
QUICK = {"JAX_PLATFORMS": "cpu", "JAX_DISABLE_MOST_OPTIMIZATIONS": "1", "OMP_NUM_THREADS": "1"}


@pytest.mark.parametrize(
    "backend", ["torch", *(pytest.param(name, marks=pytest.mark.slow) for name in ("jax", "tensorflow"))]
)
def test_fit_carries_out_a_plan_in_its_precision_and_down_its_ladder(backend, tmp_path):
    needs(backend)
    run_checks(CHECKS, backend=backend, keras_home=tmp_path, **QUICK)


@pytest.mark.parametrize(
    ("backend", "checks"),
    [
        (
            "jax",
            ["precision_checks.py::test_what_is_trained_next_in_its_own_precision_is_not_what_was_compiled_before"],
        ),
        pytest.param(
            "tensorflow",
            ["precision_checks.py::test_afterwards_the_model_computes_as_before"],
            marks=pytest.mark.slow,
        ),
    ],
)
def test_programs_that_a_framework_keeps_are_of_the_precision_they_were_compiled_in(backend, checks, tmp_path):
    needs(backend)
    run_checks(checks, backend=backend, keras_home=tmp_path, **QUICK)


def test_a_plan_that_does_not_fit_recomputes_first_then_cuts_and_survives_a_kill(tmp_path):
    """On TensorFlow whose CPU allocator is limited: every out-of-memory here is a real one."""
    needs("tensorflow")

    def killed_and_gone_on():
        command = [sys.executable, str(SCRIPT), "killed", str(tmp_path / "killed")]
        done = subprocess.run(command, env=limited(LIMIT_MB), capture_output=True, text=True, timeout=900)
        assert done.returncode == -9, done.stderr[-3000:]
        return trained("planned", tmp_path / "killed")

    with ThreadPoolExecutor(1) as pool:
        going_on = pool.submit(killed_and_gone_on)
        undisturbed = trained("planned", tmp_path / "undisturbed")
        found = going_on.result()
    assert undisturbed["said"] == [
        "the same batch again with blocks recomputed, micro-batch 120. The batch stays at 120.",
        "the same batch again with micro-batch 30. The batch stays at 120.",
    ]
    assert undisturbed["recipe"] == found["recipe"] == {"remat": "blocks", "micro_batch": 30}
    assert (undisturbed["updates"], undisturbed["seen_count"], undisturbed["seen_sum"]) == (6, [720], [SUM_OF_NUMBERS])
    assert found["said"] == []
    assert found["weights"] == undisturbed["weights"]
