"""What an estimate says of kinds of layers that were never measured."""

import keras
import pytest

import fitroom
from fitroom.keras_model.measured_kinds import unmeasured_kinds

pytestmark = pytest.mark.quick_on("torch")


def model_of(layer, shape):
    return keras.Sequential([keras.Input(shape), layer, keras.layers.Flatten(), keras.layers.Dense(2)])


def test_measured_kinds_and_their_margin_stay_as_they_are():
    assert unmeasured_kinds(model_of(keras.layers.Conv2D(4, 3, activation="relu"), (8, 8, 3))) == ()


def test_dilation_makes_another_kind():
    assert unmeasured_kinds(model_of(keras.layers.Conv2D(4, 3, dilation_rate=2), (8, 8, 3))) == ("dilated Conv2D",)


def test_a_kind_that_was_never_measured_is_named_and_given_room():
    model = model_of(keras.layers.Conv1D(4, 3), (64, 3))
    known = model_of(keras.layers.Dense(4), (64, 3))
    found, measured = (fitroom.estimate(each, 4, gpu="T4") for each in (model, known))
    assert any("Conv1D" in note for note in found.notes)
    assert not any("was measured on a card yet" in note for note in measured.notes)
    assert found.required_bytes > found.peak_bytes
