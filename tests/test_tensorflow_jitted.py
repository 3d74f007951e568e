"""TensorFlow's jitted step is laid out for a card without one; in a process of its own."""

import pytest

from test_backend_contract import needs, run_checks


@pytest.mark.parametrize(
    "checks",
    ["tensorflow_jitted_checks.py", pytest.param("tensorflow_fit_step_checks.py", marks=pytest.mark.slow)],
)
def test_jitted_steps_are_compiled_for_a_card_that_is_not_there(checks, tmp_path):
    needs("tensorflow")
    run_checks(
        [checks],
        backend="tensorflow",
        keras_home=tmp_path,
        FITROOM_CACHE_DIR=str(tmp_path / "cache"),
        FITROOM_TF_COMPILER=str(tmp_path / "none"),
    )
