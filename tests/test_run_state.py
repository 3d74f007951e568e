"""State of models and callbacks goes to disk and back, on every backend, each in a process of its own."""

import pytest

from test_backend_contract import needs, run_checks


@pytest.mark.parametrize("backend", ["jax", "tensorflow", "torch"])
def test_a_run_can_go_on_from_what_was_kept(backend, tmp_path):
    needs(backend)
    on_the_cpu = {"CUDA_VISIBLE_DEVICES": "", "JAX_PLATFORMS": "cpu", "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
    run_checks(["run_state_checks.py"], backend=backend, keras_home=tmp_path, **on_the_cpu)
