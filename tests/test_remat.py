"""Recomputing parts of a model on every backend, each in a process of its own."""

import pytest

from test_backend_contract import needs, run_checks

# Most of the time on JAX goes to compiling: the programs need not be fast.
ON_THE_CPU = {"JAX_PLATFORMS": "cpu", "JAX_DISABLE_MOST_OPTIMIZATIONS": "1", "CUDA_VISIBLE_DEVICES": ""}


@pytest.mark.parametrize("backend", ["jax"])
def test_a_model_that_recomputes_trains_as_it_does_without(backend, tmp_path):
    needs(backend)
    run_checks(["remat_checks.py"], backend=backend, keras_home=tmp_path, **ON_THE_CPU)
