"""The work of real models, and what it takes on cards."""

import keras
import pytest
from keras import layers

from fitroom.cards.catalogue import find_card
from fitroom.keras_model.loading.source import ModelSource, load_model
from fitroom.planning.roofline.step_time import StepTime
from fitroom.planning.roofline.work import KINDS, count_work
from fitroom.remat.chooser import SegmentChooser
from fitroom.remat.graph import layer_graph

H200 = find_card("H200")


def small_model(*more):
    return keras.Sequential([keras.Input((8, 8, 4)), *more, layers.GlobalAveragePooling2D(), layers.Dense(2)])


def counted(model):
    """Operations and elements by kind, those that are there."""
    work = count_work(model, layer_graph(model))
    operations, elements = work.operations.sum(axis=0), work.elements.sum(axis=0)
    return {
        kind: (int(operations[column]), int(elements[column])) for column, kind in enumerate(KINDS) if elements[column]
    }


def test_a_separable_convolution_is_two_kinds_of_work():
    found = counted(small_model(layers.SeparableConv2D(16, 3, padding="same", activation="relu")))
    assert found["depthwise"] == (2 * 64 * 9 * 4, 64 * 4 + 64 * 4)
    assert found["convolution"] == (2 * 64 * 4 * 16, 64 * 4 + 64 * 16)
    assert found["elementwise"] == (64 * 16, 2 * 64 * 16)
    assert found["matrix"] == (2 * 16 * 2, 16 + 2)


@pytest.mark.parametrize(
    ("layer", "kind"),
    [
        (layers.Conv2D(8, 3, padding="same"), "convolution"),
        (layers.Conv2D(8, 3, padding="same", groups=2), "convolution"),
        (layers.Conv2D(4, 3, padding="same", groups=4), "depthwise"),
        (layers.Conv2DTranspose(8, 3, strides=2), "convolution"),
        (layers.DepthwiseConv2D(3), "depthwise"),
        (layers.DepthwiseConv2D(7), "wide depthwise"),
        (layers.Dense(8), "matrix"),
        (layers.BatchNormalization(), "normalisation"),
        (layers.GroupNormalization(2), "normalisation"),
        (layers.ReLU(), "elementwise"),
        (layers.Dropout(0.5), "elementwise"),
        (layers.MaxPooling2D(), "pooling"),
        (layers.ZeroPadding2D(), "other"),
        (layers.UpSampling2D(), "other"),
    ],
)
def test_each_layer_has_its_kind(layer, kind):
    before, found = counted(small_model()), counted(small_model(layer))
    assert {name for name in found if found[name] != before.get(name)} >= {kind}
    assert set(found) == {kind, "pooling", "matrix"}


def test_reshaping_moves_nothing():
    assert counted(small_model(layers.Reshape((4, 16, 4)))) == counted(small_model())


def test_layers_that_are_frozen_save_their_share_of_the_backward_pass():
    model = small_model(layers.Conv2D(8, 3, name="first"), layers.ReLU(), layers.Conv2D(8, 3, name="second"))
    assert list(count_work(model, layer_graph(model)).backward) == [1, 1.5, 2, 1.5, 2]
    model.get_layer("first").trainable = False
    assert list(count_work(model, layer_graph(model)).backward) == [0, 0, 1, 1.5, 2]


def test_a_model_whose_call_is_its_own_has_no_step_time():
    class Own(keras.Model):
        def call(self, x):
            return x

    assert StepTime.of_model(Own(), backend="jax", card=H200) is None


def test_recipes_of_xception_come_in_the_order_that_was_measured():
    """Pictures a second on an H200 with JAX: 2,034 in bfloat16, 1,542 recomputing; 1,358 and 1,080 in float32."""
    model = load_model(ModelSource(text="xception"))
    step_time = StepTime.of_model(model, backend="jax", card=H200)
    blocks = SegmentChooser.of_model(model).choose("blocks").segments
    speeds = [
        step_time.speed(batch_size=64, micro_batch=64, precision=precision, jit=True, segments=segments)
        for precision in ("mixed_bfloat16", "float32")
        for segments in ((), blocks)
    ]
    found = [speed.samples_per_second for speed in speeds]
    assert found == sorted(found, reverse=True)
    on_tensorflow = StepTime.of_model(model, backend="tensorflow", card=H200)
    graph, jitted = (
        on_tensorflow.seconds(batch_size=64, micro_batch=64, precision="float32", jit=jit) for jit in (False, True)
    )
    assert graph > 2 * jitted
