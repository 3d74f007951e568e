"""Training steps on JAX, beyond what every backend must do; in a process of its own."""

from test_backend_contract import needs, run_checks


def test_steps_on_jax_are_one_program_each_and_lose_nothing(tmp_path):
    needs("jax")
    run_checks(
        ["jax_step_checks.py"],
        backend="jax",
        keras_home=tmp_path,
        FITROOM_CACHE_DIR=str(tmp_path / "cache"),
        JAX_PLATFORMS="cpu",
        JAX_DISABLE_MOST_OPTIMIZATIONS="1",  # compiling takes most of the time
    )
