"""TensorFlow's jitted step is laid out for a card without one; in a process of its own."""

from test_backend_contract import needs, run_checks


def test_jitted_steps_are_compiled_for_a_card_that_is_not_there(tmp_path):
    needs("tensorflow")
    run_checks(
        ["tensorflow_jitted_checks.py"],
        backend="tensorflow",
        keras_home=tmp_path,
        FITROOM_CACHE_DIR=str(tmp_path / "cache"),
        FITROOM_TF_COMPILER=str(tmp_path / "none"),
    )
