"""Estimating leaves a model as it was, whatever kind of model it is; on JAX, in a process of its own."""

import pytest

from test_backend_contract import needs, run_checks


@pytest.mark.slow
def test_models_of_every_kind_are_estimated_and_given_back_as_they_were(tmp_path):
    needs("jax")
    run_checks(
        ["prepared_checks.py"],
        backend="jax",
        keras_home=tmp_path,
        FITROOM_CACHE_DIR=str(tmp_path / "cache"),
        JAX_PLATFORMS="cpu",
    )
