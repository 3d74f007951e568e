"""Fixtures of tests about JAX."""

import pytest


@pytest.fixture
def kernels_are_not_tried(monkeypatch):
    """No room for XLA to try kernels in, which would be more than the small steps of a test take."""
    monkeypatch.setattr("fitroom.backends.jax.trace.estimate.AUTOTUNING_BYTES", 0)
