"""Readings of a training on the three backends, a process each."""

import pytest

from test_backend_contract import LIMITED_CPU, needs, run_checks


@pytest.mark.parametrize(
    "backend", ["tensorflow", *(pytest.param(name, marks=pytest.mark.slow) for name in ("jax", "torch"))]
)
def test_training_is_read_on_every_backend(backend, tmp_path):
    needs(backend)
    # TensorFlow counts and limits memory on the CPU too, if it is asked to.
    settings = (
        LIMITED_CPU if backend == "tensorflow" else {"JAX_PLATFORMS": "cpu", "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
    )
    run_checks(["recorder_checks.py"], backend=backend, keras_home=tmp_path, **settings)
