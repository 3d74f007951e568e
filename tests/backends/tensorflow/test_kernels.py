"""Fused kernels in graph mode compute what Keras computes, up to rounding, and leave the model as it was."""

import weakref
from contextlib import nullcontext

import keras
import numpy as np
import pytest
import tensorflow as tf

import fitroom
from fitroom.backends.choose import current_backend
from fitroom.backends.fused import has_fused
from fitroom.backends.tensorflow.device import release
from fitroom.backends.tensorflow.kernels.serve import FusedKernels, find_served
from fitroom.backends.tensorflow.train.stepper import TensorFlowStepper
from fitroom.batch import Batch
from fitroom.errors import InputError
from fitroom.train.training import fused_fallback

layers = keras.layers

NORMALISED = {
    "images": [layers.BatchNormalization, {"momentum": 0.8}],
    "rows": [layers.BatchNormalization, {"epsilon": 1e-5}, (120,)],
    "sequences": [layers.BatchNormalization, {"scale": False}, (30, 4)],
    "volumes": [layers.BatchNormalization, {"center": False, "axis": 4}, (3, 2, 5, 4)],
    "neither": [layers.BatchNormalization, {"center": False, "scale": False}],
    "frozen": [layers.BatchNormalization, {"trainable": False}],
}
FOLLOWING = {
    "activation": lambda: [layers.Activation("relu"), layers.Conv2D(3, 3)],
    "swish": lambda: [layers.Activation("hard_silu"), layers.DepthwiseConv2D(3, padding="same", depth_multiplier=2)],
    "relu6": lambda: [layers.ReLU(6.0), layers.ZeroPadding2D(1), layers.DepthwiseConv2D(3, strides=2)],
    "leaky": lambda: [layers.LeakyReLU(0.2), layers.SeparableConv2D(5, 3, padding="same", activation="relu")],
    "none": lambda: [layers.Conv2D(3, 3, dilation_rate=2, use_bias=False)],
    "pooling": lambda: [layers.MaxPooling2D(3, 2, padding="same")],
    "product": lambda: [_gated, layers.Conv2D(3, 1)],
    "two of them": lambda: [lambda x: layers.Add()([layers.Conv2D(4, 1)(x), layers.Activation("silu")(x), x])],
    "left to Keras": lambda: [layers.Activation("softmax"), layers.Conv2D(4, 3, groups=2, padding="same")],
    "sequences": lambda: [layers.Reshape((30, 4)), layers.SeparableConv1D(3, 3)],
}


def _gated(x):
    return layers.Multiply()(
        [x, layers.Dense(4, activation="sigmoid")(layers.GlobalAveragePooling2D(keepdims=True)(x))]
    )


def _model(make, shape, dtype="float32"):
    """A model with an output for each branch of the layers that `make` makes."""
    keras.utils.set_random_seed(3)
    keras.config.set_dtype_policy(dtype)
    inputs = keras.Input(shape, dtype="float32")
    found = []
    for branch in make():
        outputs = inputs
        for layer in branch:
            outputs = layer(outputs)
        found.append(outputs)
    model = keras.Model(inputs, found)
    for number, variable in enumerate(model.variables):  # ones and zeros would hide what is swapped
        if "moving" not in variable.path:
            variable.assign(np.random.default_rng(number).normal(1, 0.3, variable.shape))
    return model


def _run(model, x, kernels, training=True):
    """Outputs, gradients of input and weights, and moving statistics after one call in graph mode."""
    before = [variable.numpy() for variable in model.variables]

    @tf.function(autograph=False)
    def step(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            outputs = keras.tree.flatten(model(x, training=training))
            loss = tf.add_n([tf.reduce_sum(_weighted(tf.cast(each, tf.float32))) for each in outputs])
        return outputs, tape.gradient(loss, [x, *(each.value for each in model.trainable_variables)])

    with FusedKernels(model).during() if kernels == "fused" else nullcontext():
        outputs, gradients = step(tf.constant(x))
    found = [*outputs, *gradients, *(variable.value for variable in model.non_trainable_variables)]
    found = [tf.cast(tf.convert_to_tensor(each), tf.float64).numpy() for each in found]
    for variable, value in zip(model.variables, before, strict=True):
        variable.assign(value)
    assert not any("call" in vars(layer) for layer in model.layers)
    return found


def _weighted(tensor):
    return tensor * tf.reshape(tf.linspace(tf.constant(0.5, tensor.dtype), 1.5, tf.size(tensor)), tf.shape(tensor))


def _compare(model, x, training=True, **tolerance):
    plain, fused = (_run(model, x, kernels, training) for kernels in ("keras", "fused"))
    for one, other in zip(plain, fused, strict=True):
        np.testing.assert_allclose(other, one, **tolerance)


@pytest.mark.parametrize("training", [True, False])
def test_normalisations_give_outputs_gradients_and_statistics_of_keras(training):
    def make():
        return [[*map(layers.Reshape, shape), kind(**options)] for kind, options, *shape in NORMALISED.values()]

    model = _model(make, (5, 6, 4))
    assert [each.operation for each in find_served(model)] == ["tf.raw_ops.FusedBatchNormV3"] * len(NORMALISED)
    x = np.random.default_rng(0).normal(0.3, 1.2, (3, 5, 6, 4)).astype("float32")
    _compare(model, x, training, rtol=3e-5, atol=3e-5)


def test_layers_behind_a_normalisation_give_outputs_and_gradients_of_keras():
    model = _model(lambda: [[layers.BatchNormalization(), *make()] for make in FOLLOWING.values()], (5, 6, 4))
    x = np.random.default_rng(0).normal(0.3, 1.2, (3, 5, 6, 4)).astype("float32")
    _compare(model, x, rtol=1e-4, atol=3e-4)


@pytest.mark.parametrize("dtype", ["mixed_bfloat16", "mixed_float16"])
def test_in_mixed_precision_a_normalisation_is_no_farther_from_float32_than_keras(dtype):
    make = lambda: [[layers.BatchNormalization(), layers.Activation("relu"), layers.Conv2D(3, 3)]]  # noqa: E731
    x = tf.cast(tf.random.stateless_normal((4, 5, 6, 4), (0, 1)), dtype.removeprefix("mixed_"))
    x = tf.cast(x, tf.float32).numpy()
    exact = _run(_model(make, (5, 6, 4)), x, "keras")
    plain, fused = (_run(_model(make, (5, 6, 4), dtype), x, kernels) for kernels in ("keras", "fused"))
    for one, other, reference in zip(plain, fused, exact, strict=True):
        scale = np.abs(reference).max()
        assert np.abs(other - reference).max() <= 1.5 * np.abs(one - reference).max() + 4e-3 * scale


@pytest.mark.parametrize("mean", [0, 10, 1000])
def test_a_large_mean_is_no_farther_from_float64_than_keras(mean):
    model = _model(lambda: [[layers.BatchNormalization()]], (5, 6, 4))
    x = (mean + np.random.default_rng(0).normal(0, 1, (16, 5, 6, 4))).astype("float32")
    exact = _exact(model.layers[-1], x)
    plain, fused = (_run(model, x, kernels) for kernels in ("keras", "fused"))
    for one, other, reference in zip(plain, fused, exact, strict=True):
        assert np.abs(other - reference).max() <= 1.5 * np.abs(one - reference).max() + 3e-6 * np.abs(reference).max()


def _exact(layer, x):
    """What `_run` finds, in float64: a BatchNormalization of Keras's computes in float32 at the most."""
    x = tf.constant(x, tf.float64)
    gamma, beta = (tf.cast(each.value, tf.float64) for each in (layer.gamma, layer.beta))
    with tf.GradientTape() as tape:
        tape.watch([x, gamma, beta])
        mean, variance = tf.nn.moments(x, (0, 1, 2))
        outputs = (x - mean) / tf.sqrt(variance + layer.epsilon) * gamma + beta
        loss = tf.reduce_sum(_weighted(outputs))
    moved = [layer.momentum * start + (1 - layer.momentum) * new for start, new in ((0, mean), (1, variance))]
    return [each.numpy() for each in (outputs, *tape.gradient(loss, [x, gamma, beta]), *moved)]


def test_a_single_value_keeps_the_biased_variance():
    model = _model(lambda: [[layers.BatchNormalization(momentum=0.5)]], (4,))
    _compare(model, np.full((1, 4), 3.0, "float32"), rtol=1e-5, atol=1e-5)


def test_what_cannot_be_served_is_left_to_keras_and_named():
    inputs = keras.Input((8, 8, 4))
    x = layers.BatchNormalization(renorm=True, name="renorm")(inputs)
    x = layers.BatchNormalization(synchronized=True, name="synchronized")(x)
    x = layers.BatchNormalization(axis=1, name="axis")(x)
    x = layers.BatchNormalization(name="served")(layers.Conv2D(4, 3)(x))
    found = {each.path: (each.operation, each.why_not) for each in find_served(keras.Model(inputs, x))}
    assert found.pop("served")[0] is not None
    assert found == {"renorm": (None, "renorm"), "synchronized": (None, "synchronized"), "axis": (None, "axis 1")}


def test_a_mask_is_heeded():
    x = np.random.default_rng(0).normal(size=(4, 6, 3)).astype("float32")
    x[1, 3:] = x[2] = 0
    _compare(_model(lambda: [[layers.Masking(), layers.BatchNormalization()]], (6, 3)), x, rtol=1e-5, atol=1e-5)


def _net(jit=False):
    keras.utils.set_random_seed(5)
    inputs = keras.Input((12, 12, 3))
    x = layers.Conv2D(6, 3, padding="same")(inputs)
    y = layers.Activation("relu")(layers.BatchNormalization()(x))
    y = layers.BatchNormalization()(layers.SeparableConv2D(6, 3, padding="same", use_bias=False)(y))
    x = layers.MaxPooling2D()(layers.Add()([x, y]))
    x = layers.GlobalAveragePooling2D()(layers.Dropout(0.2, seed=1)(x))
    model = keras.Model(inputs, layers.Dense(4, activation="softmax", dtype="float32")(x))
    model.compile(keras.optimizers.SGD(0.05), "sparse_categorical_crossentropy", jit_compile=jit)
    return model


def _batch(size=12):
    random = np.random.default_rng(2)
    return random.normal(size=(size, 12, 12, 3)).astype("float32"), random.integers(0, 4, size)


@pytest.mark.parametrize(
    "recipe",
    [
        {},
        {"remat": "blocks", "micro_batch": 6},
        pytest.param({"micro_batch": 6}, marks=pytest.mark.slow),
        pytest.param({"remat": "blocks"}, marks=pytest.mark.slow),
    ],
)
def test_a_step_with_fused_kernels_ends_with_the_weights_of_the_plain_one(recipe):
    x, y = _batch()
    found = []
    for kernels in (None, "fused"):
        model = _net()
        stepper = TensorFlowStepper(model, jit=False, remat=recipe.get("remat"), kernels=kernels)
        for _ in range(2):
            logs = stepper.train(Batch(x=x, y=y), recipe.get("micro_batch", 12))
        found.append([float(logs["loss"]), *(variable.numpy() for variable in model.variables)])
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-3, atol=2e-5)


def test_fit_with_fused_kernels_leaves_the_model_and_its_file_as_they_were(tmp_path):
    x, y = _batch()
    model = _net()
    paths, config = [variable.path for variable in model.variables], model.to_json()
    history = fitroom.fit(model, x, y, batch_size=6, epochs=1, verbose=0, recipe=fitroom.Recipe(kernels="fused"))
    assert history.fitroom["recipe"]["kernels"] == "fused"
    assert ([variable.path for variable in model.variables], model.to_json()) == (paths, config)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(loaded(x), model(x))


@pytest.mark.slow
def test_two_hundred_steps_differ_no_more_than_two_plain_runs_that_differ_in_rounding():
    x, y = _batch(24)
    ends = {}
    for name, kernels, wobble in (("plain", None, 0), ("rounded", None, 1e-7), ("fused", "fused", 0)):
        model = _net()
        for variable in model.trainable_variables:
            variable.assign(variable.numpy() * (1 + wobble))
        stepper = TensorFlowStepper(model, jit=False, kernels=kernels)
        for step in range(200):
            rows = slice(8 * (step % 3), 8 * (step % 3) + 8)
            stepper.train(Batch(x=x[rows], y=y[rows]), 8)
        ends[name] = np.concatenate([variable.numpy().ravel() for variable in model.trainable_variables])
    drift = np.abs(ends["rounded"] - ends["plain"]).mean()
    assert np.abs(ends["fused"] - ends["plain"]).mean() <= 5 * drift + 1e-5


def test_a_jitted_step_has_no_fused_kernels_and_says_so():
    model = _net(jit=True)
    with pytest.raises(InputError, match="jitted step") as caught:
        fitroom.estimate(model, 4, recipe=fitroom.Recipe(kernels="fused"), gpu="RTX 3060")
    assert "--no-jit" in caught.value.hint


def test_an_estimate_with_fused_kernels_is_smaller_and_knows_the_layers():
    block = lambda: [layers.Conv2D(8, 3, padding="same"), layers.BatchNormalization(), layers.ReLU()]  # noqa: E731
    model = _model(lambda: [[*(layer for _ in range(4) for layer in block()), layers.Flatten()]], (20, 20, 3))
    model.compile("sgd", "mse", jit_compile=False)
    plain, fused = (
        fitroom.estimate(model, 1024, recipe=fitroom.Recipe(kernels=kernels), gpu="RTX 3060")
        for kernels in (None, "fused")
    )
    assert fused.peak_bytes < 0.8 * plain.peak_bytes
    assert sum(each.bytes for each in fused.by_layer if each.layer) > 0.9 * fused.peak_bytes


def test_a_plan_takes_fused_kernels_in_the_precision_that_was_measured_on_a_card():
    model = _model(lambda: [[layers.BatchNormalization(), layers.Dense(2)]], (4,))
    model.compile("sgd", "mse", jit_compile=False)
    assert has_fused(current_backend(), model, jit=False)
    for precision, kernels in (("float32", "fused"), ("mixed_float16", None)):
        assert fitroom.plan(model, 64, precision=precision, gpu="RTX 3060").recipe.kernels == kernels
        asked = fitroom.Recipe(kernels="fused", precision=precision)
        notes = fitroom.estimate(model, 64, recipe=asked, gpu="RTX 3060").notes
        assert any("on a card in float32 only" in note for note in notes) is (kernels is None)


def test_a_training_on_a_cpu_takes_fused_kernels_only_when_asked():
    model = _model(lambda: [[layers.BatchNormalization(), layers.Dense(2)]], (4,))
    model.compile("sgd", "mse", jit_compile=False)
    assert fused_fallback(model, fitroom.Recipe()) == ()
    history = fitroom.fit(model, np.ones((8, 4)), np.ones((8, 2)), batch_size=8, budget="1GiB", verbose=0)
    assert history.fitroom["recipe"].get("kernels") is None


def test_gradients_of_inputs_wait_for_those_of_weights():
    """Nothing else waits for the latter: left for the end, they keep what every layer computed again."""
    model = _model(lambda: [[layers.BatchNormalization(), layers.Conv2D(3, 3, use_bias=False)]], (8, 8, 2))
    with FusedKernels(model).during():

        @tf.function
        def gradients(x):
            with tf.GradientTape() as tape:
                tape.watch(x)
                outputs = model(x, training=True)
            return tape.gradient(outputs, [x, model.layers[-1].kernel.value])

        of_input, of_kernel = gradients.get_concrete_function(tf.TensorSpec((4, 8, 8, 2))).outputs
    assert _producers(of_kernel.op) <= _producers(of_input.op)


def _producers(operation):
    """The names of an operation and of all that it waits for; those that pass a result on are not counted."""
    found, left = set(), [operation]
    while left:
        each = left.pop()
        if each.name not in found:
            found.add(each.name)
            left += [*(given.op for given in each.inputs), *each.control_inputs]
    return {name for name in found if "Identity" not in name}


@pytest.mark.parametrize("uses", ["estimate", "stepper"])
def test_nothing_of_the_model_is_kept(uses):
    def handle():
        model = _net()
        if uses == "estimate":
            fitroom.estimate(model, 4, recipe=fitroom.Recipe(jit=False, kernels="fused"), gpu="H200")
        else:
            x, y = _batch(4)
            TensorFlowStepper(model, jit=False, kernels="fused").train(Batch(x=x, y=y), 4)
        return weakref.ref(model.trainable_variables[0].value.handle)

    kept = handle()
    release()
    assert kept() is None
