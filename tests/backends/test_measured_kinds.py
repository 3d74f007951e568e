"""What an estimate says of kinds of layers that were never measured."""

import keras
import pytest
from keras import layers

import fitroom
from fitroom.keras_model.measured_kinds import unmeasured_kinds
from fitroom.keras_model.model_kind import model_kind

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


def test_a_kind_of_model_is_told_by_its_layers():
    image, tokens = keras.Input((32, 32, 3)), keras.Input((8, 16))
    patches = layers.Reshape((16, 8))(layers.Conv2D(8, 8, strides=8)(image))
    attended = layers.MultiHeadAttention(2, 4)(patches, patches)
    convolved = layers.Conv1D(8, 3)(layers.Conv1D(8, 3)(attended))
    outputs = {
        "convolutions": (image, layers.SeparableConv2D(4, 3)(image)),
        "attention": (image, attended),
        "convolutions and attention": (image, convolved),
        "recurrent layers": (tokens, layers.Bidirectional(layers.LSTM(4))(tokens)),
        "other layers": (tokens, layers.Dense(4)(tokens)),
    }
    assert {kind: model_kind(keras.Model(*ends)) for kind, ends in outputs.items()} == dict(
        zip(outputs, outputs, strict=True)
    )
