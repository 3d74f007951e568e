"""Keras's methods served by fitroom, on the three backends, a process each."""

import pytest

from test_backend_contract import needs, run_checks


@pytest.mark.parametrize("backend", ["torch", "jax", "tensorflow"])
def test_served_methods_do_what_kerass_own_do(backend, tmp_path):
    needs(backend)
    two_cpus = {"XLA_FLAGS": "--xla_force_host_platform_device_count=2"} if backend == "jax" else {}
    quick = {"JAX_PLATFORMS": "cpu", "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
    run_checks(["protect_checks.py"], backend=backend, keras_home=tmp_path, **quick, **two_cpus)
