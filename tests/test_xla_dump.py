"""What XLA writes about a compiled step is read as it is meant, whichever version wrote it."""

from test_backend_contract import needs, run_checks


def test_dumps_of_every_form_are_read(tmp_path):
    needs("jax")
    run_checks(["xla_dump_checks.py"], backend="jax", keras_home=tmp_path, JAX_PLATFORMS="cpu")
