"""`fitroom.explain` of errors that the frameworks really raise, and of a model's savings."""

import keras
import numpy as np
import pytest

import fitroom

TOO_MANY = 2**55
LOG = "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB"


@pytest.fixture(scope="module")
def model():
    layers = [keras.layers.Conv2D(8, 3, padding="same", activation="relu", name=f"conv{number}") for number in range(4)]
    return keras.Sequential([keras.Input((16, 16, 3)), *layers, keras.layers.GlobalMaxPool2D(), keras.layers.Dense(2)])


@pytest.mark.backends("jax", "torch")  # TensorFlow waits ten seconds: tests/pressure has its errors
def test_memory_that_really_runs_out_is_recognised():
    with pytest.raises(Exception) as raised:  # noqa: PT011 - each framework has its own
        keras.ops.convert_to_numpy(keras.ops.ones((TOO_MANY,)) + 1)
    explanation = fitroom.explain(raised.value)
    assert explanation.recognised, str(raised.value)
    assert explanation.failure.requested_bytes in (None, 4 * TOO_MANY)
    assert explanation.failure.framework in (None, keras.backend.backend())


def test_an_error_of_another_kind_is_not_recognised():
    with pytest.raises(Exception) as raised:  # noqa: PT011
        keras.ops.matmul(np.ones((2, 3)), np.ones((2, 3)))
    assert not fitroom.explain(raised.value).recognised


def test_settings_say_what_they_save_for_a_model(model):
    explanation = fitroom.explain(LOG, model=model, batch_size=64, gpu="T4")
    savings = {setting.changes: setting for setting in explanation.settings if setting.needs_bytes is not None}
    assert set(savings) == {"nothing", "rounding", "batch statistics"}
    for setting in savings.values():
        assert setting.needs_bytes + setting.saves_bytes == explanation.required_bytes
    assert savings["batch statistics"].saves_bytes > 0
    assert "mixed_float16" in savings["rounding"].how  # a T4 has no bfloat16
    assert "saves" in str(explanation)
    assert "saves" in explanation._repr_html_()


def test_a_failure_of_the_host_has_no_savings(model):
    explanation = fitroom.explain("MemoryError", model=model, batch_size=4)
    assert explanation.required_bytes is None
    assert all(setting.needs_bytes is None for setting in explanation.settings)
