"""Structured pruning: channels are really removed, and what is left answers as it should."""

import os
import subprocess
import sys

import keras
import numpy as np
import pytest
from keras import layers

import fitroom
from fitroom.lean import changes, prune
from lean_models import NETS, OF_OPERATIONS, SIZE, attention, flattened, residual, shared
from processes import hide_tensorflow
from zeroed_channels import draw_weights, prune_and_zero

IMAGES = np.random.default_rng(0).normal(size=(4, SIZE, SIZE, 3)).astype("float32")
LABELS = np.array([0, 1, 2, 3])


def answers_of(model, images=IMAGES):
    return keras.ops.convert_to_numpy(model(images))


def drawn(make):
    model = make()
    draw_weights(model)
    return model


@pytest.mark.parametrize("name", NETS)
def test_pruned_model_answers_as_the_whole_one_with_removed_channels_at_zero(name):
    model = drawn(NETS[name])
    pruned = prune_and_zero(model, 0.5)
    assert pruned.count_params() < 0.6 * model.count_params()
    np.testing.assert_allclose(answers_of(pruned), answers_of(model), atol=1e-6)


@pytest.mark.quick_on("torch")
@pytest.mark.parametrize(
    ("name", "widths"),
    [
        ("captions", {"before": 8, "attention": 16, "second": 5, "words": 5, "after": 6}),
        ("split_in_two", {"stem": 4, "after": 3, "last": 3}),
    ],
)
def test_sequences_slices_and_operations_are_followed(name, widths, tmp_path):
    model = drawn(OF_OPERATIONS[name])
    given = np.arange(4 * SIZE).reshape(4, SIZE) % 20 if name == "captions" else IMAGES
    pruned = prune_and_zero(model, 0.5)
    assert {layer: pruned.get_layer(layer).output.shape[-1] for layer in widths} == widths
    np.testing.assert_allclose(answers_of(pruned, given), answers_of(model, given), atol=1e-6)
    pruned.save(tmp_path / "pruned.keras")
    loaded = keras.models.load_model(tmp_path / "pruned.keras")
    np.testing.assert_array_equal(answers_of(loaded, given), answers_of(pruned, given))


@pytest.mark.parametrize("make", [*NETS.values(), attention], ids=[*NETS, "attention"])
def test_nothing_removed_answers_the_same(make):
    model = drawn(make)
    assert [tuple(w.shape) for w in prune(model, 0.0).weights] == [tuple(w.shape) for w in model.weights]
    np.testing.assert_array_equal(answers_of(prune(model, 0)), answers_of(model))


def test_adapted_normalization_keeps_its_statistics():
    norm = layers.Normalization()
    norm.adapt(10 + 3 * IMAGES)
    model = keras.Sequential([keras.Input((SIZE, SIZE, 3)), norm, layers.Conv2D(4, 3, name="conv"), layers.Flatten()])
    model.add(layers.Dense(2))
    np.testing.assert_allclose(answers_of(prune(model, 0)), answers_of(model), rtol=1e-5)


def test_shapes_of_residual_net():
    pruned = prune(drawn(residual), 0.5)
    widths = {layer.name: layer.filters for layer in pruned.layers if hasattr(layer, "filters")}
    assert widths["stem"] == widths["wide0"] == widths["wide1"] == 4
    assert widths["narrow0"] == widths["narrow1"] == 6
    assert widths["projection"] == 3
    assert pruned.output_shape == (None, 5)


def test_attention_and_group_normalization_keep_their_blocks():
    pruned = prune(drawn(attention), 0.5)
    sizes = {layer.name: layer for layer in pruned.layers}
    assert pruned.get_layer("patches").filters == 8
    assert sizes["widen"].units == 16
    assert sizes["groups"].groups == 4
    assert np.isfinite(answers_of(pruned)).all()


@pytest.mark.parametrize("importance", ["magnitude", "gradient"])
def test_pruned_model_trains_compiled_as_before(importance):
    model = drawn(residual)
    model.compile(keras.optimizers.Adam(0.01), "sparse_categorical_crossentropy", metrics=["accuracy"])
    before = [np.array(weight) for weight in model.get_weights()]
    pruned = prune(model, 0.5, importance=importance, data=(IMAGES, LABELS))
    for weight, old in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(weight, old)
    assert pruned.optimizer is not model.optimizer
    losses = pruned.fit(IMAGES, LABELS, epochs=12, verbose=0).history["loss"]
    assert losses[-1] < losses[0]


def test_gradient_keeps_the_channels_that_the_loss_needs():
    inputs = keras.Input((4,))
    x = layers.Dense(4, name="hidden", use_bias=False)(inputs)
    model = keras.Model(inputs, layers.Dense(1, name="out", use_bias=False)(x))
    model.get_layer("hidden").set_weights([np.diag([9.0, 9.0, 1.0, 1.0]).astype("float32")])
    model.get_layer("out").set_weights([np.array([[1.0], [1.0], [1.0], [1.0]], "float32")])
    model.compile(loss="mse")
    x = np.zeros((8, 4), "float32")
    x[:, 2:] = np.random.default_rng(0).normal(size=(8, 2))  # only the two smaller channels are ever used
    pruned = prune(model, 0.5, importance="gradient", data=(x, np.ones((8, 1), "float32")))
    np.testing.assert_allclose(answers_of(pruned, x), answers_of(model, x), atol=1e-5)
    assert not np.allclose(answers_of(prune(model, 0.5), x), answers_of(model, x))
    model.trainable = False
    frozen = prune(model, 0.5, importance="gradient", data=(x, np.ones((8, 1), "float32")))
    np.testing.assert_array_equal(frozen.get_weights()[0], pruned.get_weights()[0])


@pytest.mark.quick_on("torch")
def test_saved_model_loads_without_fitroom(tmp_path):
    pruned = prune(drawn(shared), 0.5)
    pruned.save(tmp_path / "pruned.keras")
    np.save(tmp_path / "answers.npy", answers_of(pruned))
    np.save(tmp_path / "images.npy", IMAGES)
    is_tensorflow = keras.backend.backend() == "tensorflow"
    environment = os.environ if is_tensorflow else hide_tensorflow(os.environ)
    script = (
        "import sys; sys.modules['fitroom'] = None\n"
        "import keras, numpy as np\n"
        "model = keras.models.load_model('pruned.keras')\n"
        "found = keras.ops.convert_to_numpy(model(np.load('images.npy')))\n"
        "np.testing.assert_allclose(found, np.load('answers.npy'), atol=1e-6)\n"
    )
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path, env=environment, check=True)


def test_changes_name_groups_and_what_is_kept():
    model = drawn(residual)
    groups = {group.layers: group for group in changes(prune(model, 0.5)).groups}
    assert groups["stem", "wide0", "wide1"].channels == 8
    assert groups["stem", "wide0", "wide1"].kept == 4
    assert "softmax" in groups["head",].reason
    kept = prune(model, 0.5, keep=["stem"])
    assert kept.get_layer("wide1").filters == 8
    with pytest.raises(fitroom.InputError, match="Nothing is known"):
        changes(model)


class Doubled(layers.Layer):
    def call(self, inputs):
        return 2 * inputs


def mixer():
    """Dense layers over tokens, without a sum around them."""
    inputs = keras.Input((SIZE, SIZE, 3))
    x = layers.Permute((2, 1))(layers.Dense(12, name="first")(layers.Reshape((SIZE * SIZE, 3))(inputs)))
    x = layers.Permute((2, 1))(layers.Dense(8, name="tokens")(x))
    return keras.Model(inputs, layers.Dense(2)(layers.Flatten()(layers.Dense(6, name="last")(x))))


def pooled_channels():
    inputs = keras.Input((SIZE, SIZE, 3))
    x = layers.Permute((3, 2, 1))(layers.Conv2D(8, 3, name="first")(inputs))
    return keras.Model(inputs, layers.Dense(2)(layers.GlobalAveragePooling2D()(layers.MaxPooling2D(2, 1)(x))))


def convolved_channels():
    inputs = keras.Input((SIZE, SIZE, 3))
    x = layers.Permute((3, 2, 1))(layers.Conv2D(8, 3, name="first")(inputs))
    return keras.Model(inputs, layers.Dense(2)(layers.GlobalAveragePooling2D()(layers.Conv2D(6, 3, name="last")(x))))


def first_channels_flattened():
    """Flatten brings the channels to the end first."""
    inputs = keras.Input((SIZE, SIZE, 3))
    x = layers.Permute((3, 1, 2))(layers.Conv2D(6, 3, name="first")(inputs))
    return keras.Model(inputs, layers.Dense(2)(layers.Flatten(data_format="channels_first")(x)))


@pytest.mark.quick_on("torch")
@pytest.mark.parametrize(
    ("make", "first"), [(mixer, 6), (pooled_channels, 8), (convolved_channels, 8), (first_channels_flattened, 3)]
)
def test_channels_along_other_axes_are_followed_or_kept(make, first):
    model = drawn(make)
    try:
        pruned = prune_and_zero(model, 0.5)
    except fitroom.ModelError:
        pruned = model
    layer = pruned.get_layer("first")
    assert getattr(layer, "units", getattr(layer, "filters", None)) == first
    np.testing.assert_allclose(answers_of(pruned), answers_of(model), atol=1e-5)


def by_sum(x):
    return x / (1 + keras.ops.sum(keras.ops.abs(x), axis=-1, keepdims=True))


@pytest.mark.quick_on("torch")
def test_functions_of_the_users_own_are_copied_and_keep_the_channels_they_may_mix():
    inputs = keras.Input((SIZE, SIZE, 3))
    x = layers.Conv2D(8, 1, activation=by_sum, name="own")(inputs)
    x = layers.Lambda(lambda x: by_sum(x))(layers.Conv2D(6, 1, name="before")(x))
    x = layers.GlobalAveragePooling2D()(layers.Conv2D(6, 1, activation="relu", name="after")(x))
    model = keras.Model(inputs, layers.Dense(2)(x))
    pruned = prune_and_zero(model, 0.5)
    assert [pruned.get_layer(name).filters for name in ("own", "before", "after")] == [8, 6, 3]
    np.testing.assert_allclose(answers_of(pruned), answers_of(model), atol=1e-6)


class Unknown(layers.Layer):
    def __init__(self, first, second):
        super().__init__()

    def get_config(self):
        return {}

    def call(self, inputs):
        return inputs


@pytest.mark.quick_on("torch")
def test_what_cannot_be_copied_or_is_quantized_is_named():
    inputs = keras.Input((4,))
    model = keras.Model(inputs, layers.Dense(2)(Unknown(1, 2)(layers.Dense(8)(layers.Dense(8)(inputs)))))
    with pytest.raises(fitroom.ModelError, match="\\(Unknown\\) could not be copied"):
        prune(model, 0.5)
    quantized = keras.Sequential([keras.Input((4,)), layers.Dense(8), layers.Dense(2)])
    quantized.quantize("int8")
    with pytest.raises(fitroom.ModelError, match="is quantized"):
        prune(quantized, 0.5)


class Own(keras.Model):
    def __init__(self):
        super().__init__()
        self.dense = layers.Dense(3)

    def build(self, shape):
        self.dense.build(shape)

    def call(self, inputs):
        return self.dense(inputs)


def test_layer_of_the_users_own_keeps_its_channels_and_is_named():
    inputs = keras.Input((4,))
    x = Doubled(name="mine")(layers.Dense(8, name="before")(inputs))
    model = keras.Model(inputs, layers.Dense(2)(layers.Dense(6, name="after")(x)))
    pruned = prune(model, 0.5)
    assert (pruned.get_layer("before").units, pruned.get_layer("after").units) == (8, 3)
    stopped = keras.Model(inputs, layers.Dense(2)(x))
    with pytest.raises(fitroom.ModelError, match="mine \\(Doubled\\) takes all channels"):
        prune(stopped, 0.5)


def test_what_cannot_be_pruned_is_refused():
    own = Own()
    own.build((None, 4))
    with pytest.raises(fitroom.ModelError, match="Own with a `call` of its own"):
        prune(own, 0.5)
    with pytest.raises(fitroom.ModelError, match="not built"):
        prune(keras.Sequential([layers.Dense(3)]), 0.5)
    with pytest.raises(fitroom.InputError, match="from 0 to below 1"):
        prune(flattened(), 50)
    model = flattened()
    model.compile(loss="sparse_categorical_crossentropy")
    with pytest.raises(fitroom.InputError, match="needs `data`"):
        prune(model, 0.5, importance="gradient")
    with pytest.raises(fitroom.UnknownNameError, match="importance"):
        prune(flattened(), 0.5, importance="size")
    with pytest.raises(fitroom.UnknownNameError, match="keep"):
        prune(flattened(), 0.5, keep=["no such layer"])
    with pytest.raises(fitroom.InputError, match="removes no channel"):
        prune(flattened(), 0.01)


@pytest.mark.backends("torch")  # it compiles nothing; what a model is made of does not depend on the backend
@pytest.mark.parametrize("name", ["MobileNetV3Small", pytest.param("Xception", marks=pytest.mark.slow)])
def test_application_pruned_by_half(name):
    model = getattr(keras.applications, name)(weights=None, input_shape=(71, 71, 3), classes=5)
    pruned = prune(model, 0.5)
    assert pruned.count_params() < 0.3 * model.count_params()
    assert pruned(np.zeros((1, 71, 71, 3), "float32")).shape == (1, 5)
