"""`fitroom.fit` on the three backends, a process each."""

import pytest

from test_backend_contract import needs, run_checks


@pytest.mark.parametrize(
    "backend", ["torch", *(pytest.param(name, marks=pytest.mark.slow) for name in ("jax", "tensorflow"))]
)
def test_fit_trains_as_keras_does_and_survives_what_it_does_not(backend, tmp_path):
    needs(backend)
    # Small programs, each run a few times: quick to compile matters, not quick to run.
    quick = {"JAX_PLATFORMS": "cpu", "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
    run_checks(["fit_checks.py", "fit_run_checks.py"], backend=backend, keras_home=tmp_path, **quick)
