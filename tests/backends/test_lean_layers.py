"""Convolutions made separable, and LoRA adapters."""

import keras
import numpy as np
import pytest
from keras import layers

import fitroom
from fitroom.lean import adapt, changes, merge, separable
from lean_models import SIZE

IMAGES = np.random.default_rng(0).normal(size=(8, SIZE, SIZE, 3)).astype("float32")
LABELS = np.arange(8) % 4


def answers_of(model):
    return keras.ops.convert_to_numpy(model(IMAGES))


def plain():
    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [
            keras.Input((SIZE, SIZE, 3)),
            layers.Conv2D(8, 3, strides=2, padding="same", activation="relu", name="stem"),
            layers.Conv2D(16, 3, padding="same", name="conv"),
            layers.DepthwiseConv2D(3, name="depthwise"),
            layers.Conv2D(12, 1, activation="relu", name="pointwise"),
            layers.BatchNormalization(name="norm"),
            layers.GlobalAveragePooling2D(),
            layers.Dense(4, name="head"),
        ]
    )
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


def test_kernels_of_rank_one_become_separable_without_error():
    model = plain()
    random = np.random.default_rng(1)
    kernel = random.normal(size=(3, 3, 8, 1)) * random.normal(size=(1, 1, 8, 16)) / 9
    model.get_layer("conv").set_weights([kernel.astype("float32"), model.get_layer("conv").get_weights()[1]])
    found = separable(model, ["conv"])
    assert changes(found).changed[0].error < 1e-6
    np.testing.assert_allclose(answers_of(found), answers_of(model), atol=1e-5)


def test_separable_shrinks_what_it_can_and_tells_the_error():
    model = plain()
    found = separable(model)
    assert found.count_params() < model.count_params()
    assert isinstance(found.get_layer("conv"), layers.SeparableConv2D)
    assert found.get_layer("stem").strides == (2, 2)
    told = changes(found)
    assert {each.layer for each in told.changed} == {"stem", "conv"}
    assert all(0 < each.error < 1 for each in told.changed)
    assert [each.layer for each in told.unchanged] == ["pointwise"]
    more = separable(model, rank=3, layers=["conv"])
    assert changes(more).changed[0].error < told.changed[1].error
    assert np.isfinite(found.train_on_batch(IMAGES, LABELS))


def test_only_adapters_and_named_layers_are_trained():
    model = plain()
    before = {layer.name: [np.array(each) for each in layer.get_weights()] for layer in model.layers}
    found = adapt(model, 2, train=["head"])
    np.testing.assert_allclose(answers_of(found), answers_of(model), atol=1e-6)
    told = changes(found)
    assert [each.layer for each in told.changed] == ["stem", "conv", "pointwise"]
    assert {each.layer: each.reason for each in told.unchanged}[
        "depthwise"
    ] == "Keras has no adapter for DepthwiseConv2D"
    names = {variable.name for variable in found.trainable_variables}
    assert names == {"lora_kernel_a", "lora_kernel_b", "kernel", "bias"}
    found.fit(IMAGES, LABELS, epochs=3, verbose=0)
    assert np.abs(answers_of(found) - answers_of(model)).max() > 1e-4
    np.testing.assert_array_equal(found.get_layer("depthwise").get_weights()[0], before["depthwise"][0])
    np.testing.assert_array_equal(found.get_layer("norm").get_weights()[2], before["norm"][2])


def test_adapters_are_merged_in_the_file_and_by_merge(tmp_path):
    found = adapt(plain(), 2, train=["head"])
    found.fit(IMAGES, LABELS, epochs=2, verbose=0)
    merged = merge(found)
    np.testing.assert_allclose(answers_of(merged), answers_of(found), atol=1e-5)
    assert not any(getattr(layer, "lora_enabled", False) for layer in merged.layers)
    found.save(tmp_path / "adapted.keras")
    merged.save(tmp_path / "merged.keras")
    for name in ("adapted.keras", "merged.keras"):
        loaded = keras.models.load_model(tmp_path / name)
        np.testing.assert_allclose(answers_of(loaded), answers_of(found), atol=1e-5)
    assert loaded.count_params() == plain().count_params()  # the merged file brings no new adapters


@pytest.mark.quick_on("torch")
def test_frozen_layers_train_their_adapters_and_a_named_head():
    model = plain()
    model.trainable = False
    found = adapt(model, 2, train=["head"])
    names = {variable.name for variable in found.trainable_variables}
    assert names == {"lora_kernel_a", "lora_kernel_b", "kernel", "bias"}
    with pytest.raises(fitroom.ModelError, match="has an adapter; fitroom"):
        separable(found, ["conv"])


def test_what_cannot_be_is_refused():
    model = plain()
    with pytest.raises(fitroom.ModelError, match="kernel is 1 x 1"):
        separable(model, ["pointwise"])
    with pytest.raises(fitroom.ModelError, match="DepthwiseConv2D"):
        adapt(model, 2, layers=["depthwise"])
    with pytest.raises(fitroom.UnknownNameError, match="haed"):
        adapt(model, 2, train=["haed"])
    with pytest.raises(fitroom.InputError, match="at least 1"):
        adapt(model, 0)
    with pytest.raises(fitroom.InputError, match="no adapters"):
        merge(model)
    with pytest.raises(fitroom.ModelError, match="has an adapter"):
        fitroom.lean.prune(adapt(model, 2), 0.5)
