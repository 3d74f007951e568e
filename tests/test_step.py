"""The step in micro-batches on every backend, each in a process of its own."""

import pytest

from test_backend_contract import needs, run_checks

# Most of the time on JAX goes to compiling: the programs need not be fast.
ON_THE_CPU = {"JAX_PLATFORMS": "cpu", "JAX_DISABLE_MOST_OPTIMIZATIONS": "1", "CUDA_VISIBLE_DEVICES": ""}


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["jax", "tensorflow", "torch"])
def test_every_case_is_right_in_seven_parts_too(backend, tmp_path):
    needs(backend)
    run_checks(["step_checks.py"], backend=backend, keras_home=tmp_path, FITROOM_ALL_CUTS="1", **ON_THE_CPU)


@pytest.mark.parametrize("backend", ["jax", "tensorflow", "torch"])
def test_a_step_in_micro_batches_is_that_of_the_whole_batch_and_all_or_nothing(backend, tmp_path):
    needs(backend)
    run_checks(["step_checks.py", "transaction_checks.py"], backend=backend, keras_home=tmp_path, **ON_THE_CPU)
