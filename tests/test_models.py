"""A model is found by its name in any spelling, by its file, or by the function that builds it."""

import pytest

from test_backend_contract import needs, run_checks


@pytest.mark.slow
def test_models_are_found_by_what_is_typed(tmp_path):
    needs("jax")
    run_checks(["models_checks.py"], backend="jax", keras_home=tmp_path, JAX_PLATFORMS="cpu")
