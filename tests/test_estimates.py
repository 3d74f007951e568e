"""Estimates and plans of models that users bring, on the three backends, a process each."""

import pytest

from test_backend_contract import LIMITED_CPU, needs, run_checks


@pytest.mark.parametrize("backend", ["jax", "tensorflow", "torch"])
def test_models_that_users_bring_are_estimated_without_running_them(backend, tmp_path):
    needs(backend)
    limited = LIMITED_CPU if backend == "tensorflow" else {"JAX_PLATFORMS": "cpu"}
    run_checks(["estimate_checks.py"], backend=backend, keras_home=tmp_path, **limited)
