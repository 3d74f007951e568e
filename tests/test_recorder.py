"""Readings of a training on the three backends, a process each."""

import pytest

from test_backend_contract import LIMITED_CPU, needs, run_checks


@pytest.mark.parametrize("backend", [pytest.param("jax", marks=pytest.mark.slow), "torch", "tensorflow"])
def test_training_is_read_on_every_backend(backend, tmp_path):
    needs(backend)
    # TensorFlow counts and limits memory on the CPU too, if it is asked to.
    settings = (
        LIMITED_CPU if backend == "tensorflow" else {"JAX_PLATFORMS": "cpu", "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
    )
    run_checks(["recorder_checks.py"], backend=backend, keras_home=tmp_path, **settings)
