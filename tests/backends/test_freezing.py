"""Layers left untrained: what that takes, and that the model is as it was after a look at it."""

import keras
import pytest

import fitroom
from fitroom.errors import InputError, ModelError
from fitroom.keras_model.freezing import freeze_temporarily, layers_with_weights, num_frozen


def nested_net():
    """A backbone inside a model, with statistics and a block of its own flags."""
    layers = keras.layers
    inner = inputs = keras.Input((32, 32, 3))
    for number in range(3):
        inner = layers.Conv2D(16, 3, padding="same", name=f"conv_{number}")(inner)
        inner = layers.BatchNormalization(name=f"norm_{number}")(inner)
    backbone = keras.Model(inputs, inner, name="backbone")
    outer = keras.Input((32, 32, 3))
    x = layers.GlobalAveragePooling2D()(backbone(outer))
    model = keras.Model(outer, layers.Dense(5, activation="softmax", name="head")(x))
    model.compile("adam", "sparse_categorical_crossentropy")
    return model


def flags(model):
    layers = [(layer.name, layer.trainable) for layer in model._flatten_layers()]
    return layers + [(variable.path, variable.trainable) for variable in model.variables]


def test_layers_count_in_the_order_of_the_data_those_of_a_backbone_one_by_one():
    model = nested_net()
    names = [layer.name for layer in layers_with_weights(model)]
    assert names == ["conv_0", "norm_0", "conv_1", "norm_1", "conv_2", "norm_2", "head"]
    fitroom.freeze(model, 3)
    assert num_frozen(model) == 3
    trained = {variable.path.split("/")[-2] for variable in model.trainable_variables}
    assert trained == {"norm_1", "conv_2", "norm_2", "head"}


def test_after_a_look_every_flag_is_as_it_was():
    model = nested_net()
    model.get_layer("backbone").get_layer("norm_0").trainable = False
    before = flags(model)
    with freeze_temporarily(model, 4):
        assert num_frozen(model) == 4
    with pytest.raises(KeyError), freeze_temporarily(model, 6):
        raise KeyError
    assert flags(model) == before


@pytest.mark.parametrize("precision", [None, "mixed_bfloat16"][: 2 if keras.backend.backend() == "torch" else 1])
def test_an_estimate_with_frozen_layers_is_that_of_a_model_with_frozen_layers(precision):
    model, by_hand = nested_net(), nested_net()
    before = flags(model)
    fitroom.freeze(by_hand, 6)
    by_hand.compile("adam", "sparse_categorical_crossentropy")
    plain, frozen, expected = (
        fitroom.estimate(given[0], 64, recipe=given[1], gpu="T4")
        for given in (
            (model, None),
            (model, fitroom.Recipe(frozen_layers=6, precision=precision)),
            (by_hand, fitroom.Recipe(precision=precision)),
        )
    )
    assert flags(model) == before
    assert frozen.peak_bytes == expected.peak_bytes
    assert frozen.peak_bytes < 0.8 * plain.peak_bytes


def test_what_cannot_be_frozen_is_refused():
    class Own(keras.Model):
        def call(self, x):
            return x

    with pytest.raises(InputError, match="must leave something to train"):
        fitroom.freeze(nested_net(), 7)
    with pytest.raises(ModelError, match="Python code of its own"):
        fitroom.freeze(Own(), 1)
    with pytest.raises(InputError, match="at least 1"):
        fitroom.Recipe(frozen_layers=0)
    with pytest.raises(InputError, match="Received also: frozen_layers"):
        fitroom.fit(nested_net(), [], recipe=fitroom.Recipe(frozen_layers=1))
