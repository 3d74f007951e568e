"""The step in micro-batches on every backend, each in a process of its own."""

import pytest

from test_backend_contract import needs, run_checks

CHECKS = ["step_checks.py", "transaction_checks.py"]


@pytest.mark.parametrize("backend", ["jax", "tensorflow", "torch"])
def test_a_step_in_micro_batches_is_that_of_the_whole_batch(backend, tmp_path):
    needs(backend)
    run_checks(CHECKS, backend=backend, keras_home=tmp_path, JAX_PLATFORMS="cpu", CUDA_VISIBLE_DEVICES="")
