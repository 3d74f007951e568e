"""The first layers left untrained, on each backend."""

import pytest

from test_backend_contract import needs, run_checks


@pytest.mark.parametrize(
    "backend", ["tensorflow", *(pytest.param(name, marks=pytest.mark.slow) for name in ("jax", "torch"))]
)
def test_frozen_layers(backend, tmp_path):
    needs(backend)
    run_checks(["freezing_checks.py"], backend=backend, keras_home=tmp_path)
