"""Fused kernels compute what Keras computes, up to rounding, and leave the model as it was."""

import threading
from collections import Counter
from contextlib import nullcontext

import keras
import numpy as np
import pytest
import torch

import fitroom
from fitroom.backends.torch.kernels.serve import FusedKernels, find_served
from fitroom.backends.torch.kernels.weights import Weight, as_depthwise_weight, as_weight, copy_weights
from fitroom.backends.torch.train.stepper import TorchStepper
from fitroom.batch import Batch

layers = keras.layers

LAYERS = {
    "conv": (lambda: layers.Conv2D(6, 3, padding="same", activation="relu"), (9, 8, 4)),
    "conv stride": (lambda: layers.Conv2D(6, 3, strides=2, padding="same", use_bias=False), (8, 9, 4)),
    "conv valid": (lambda: layers.Conv2D(6, (2, 3), strides=(1, 2)), (8, 9, 4)),
    "conv dilated": (lambda: layers.Conv2D(6, 3, dilation_rate=2, padding="same"), (9, 9, 4)),
    "conv groups": (lambda: layers.Conv2D(6, 3, groups=2), (7, 7, 4)),
    "conv 1d": (lambda: layers.Conv1D(6, 3, strides=2, padding="same"), (12, 4)),
    "conv 1d causal": (lambda: layers.Conv1D(6, 3, dilation_rate=2, padding="causal"), (12, 4)),
    "conv 3d": (lambda: layers.Conv3D(3, 2, padding="same"), (4, 5, 6, 2)),
    "depthwise": (lambda: layers.DepthwiseConv2D(3, padding="same", depth_multiplier=2), (7, 8, 4)),
    "depthwise stride": (lambda: layers.DepthwiseConv2D(5, strides=2, padding="same"), (10, 9, 4)),
    "depthwise 1d": (lambda: layers.DepthwiseConv1D(3), (9, 4)),
    "separable": (lambda: layers.SeparableConv2D(5, 3, padding="same", activation="relu"), (7, 8, 4)),
    "separable 1d": (lambda: layers.SeparableConv1D(5, 3), (9, 4)),
    "max pool": (lambda: layers.MaxPooling2D(3, 2, padding="same"), (9, 9, 4)),
    "max pool uneven": (lambda: layers.MaxPooling2D(3, 2, padding="same"), (8, 9, 4)),
    "max pool both sides": (lambda: layers.MaxPooling2D(4, 1, padding="same"), (8, 9, 4)),
    "max pool 1d": (lambda: layers.MaxPooling1D(2), (9, 4)),
    "max pool 3d": (lambda: layers.MaxPooling3D(2), (4, 6, 4, 2)),
    "average pool": (lambda: layers.AveragePooling2D(3, 2, padding="same"), (9, 9, 4)),
    "average pool uneven": (lambda: layers.AveragePooling2D(3, 2, padding="same"), (8, 8, 4)),
    "average pool 1d": (lambda: layers.AveragePooling1D(2), (8, 4)),
    "batch norm": (lambda: layers.BatchNormalization(momentum=0.8), (5, 6, 4)),
    "batch norm of rows": (lambda: layers.BatchNormalization(), (4,)),
    "batch norm of sequences": (lambda: layers.BatchNormalization(scale=False), (6, 4)),
    "batch norm 3d": (lambda: layers.BatchNormalization(center=False), (3, 4, 5, 4)),
    "batch norm axis 1": (lambda: layers.BatchNormalization(axis=1, epsilon=1e-5), (4, 5, 6)),
    "batch norm axis 2": (lambda: layers.BatchNormalization(axis=2), (4, 5, 6)),
    "group norm": (lambda: layers.GroupNormalization(2), (5, 6, 4)),
    "group norm of sequences": (lambda: layers.GroupNormalization(4), (6, 4)),
    "group norm axis 1": (lambda: layers.GroupNormalization(2, axis=1), (4, 5, 6)),
}


def _model(make, shape, dtype="float32"):
    keras.utils.set_random_seed(3)
    keras.config.set_dtype_policy(dtype)
    inputs = keras.Input(shape, dtype="float32")
    layer = make()
    model = keras.Model(inputs, layer(inputs))
    for variable in model.variables:  # ones and zeros would hide what is swapped
        if "moving" not in variable.name:
            variable.assign(np.random.default_rng(1).normal(1, 0.3, variable.shape))
    return model, layer


def _run(model, layer, x, kernels, training=True):
    """Outputs, gradients of input and weights, and moving statistics after one call."""
    before = [keras.ops.convert_to_numpy(v).copy() for v in model.variables]
    tensor = torch.tensor(x, requires_grad=True)
    fused = FusedKernels(model) if kernels == "fused" else None
    if fused:
        with fused.during():
            outputs = model(tensor, training=training)
    else:
        outputs = model(tensor, training=training)
    weights = torch.linspace(0.5, 1.5, outputs.numel()).reshape(outputs.shape)
    (outputs.to(weights.dtype) * weights).sum().backward()
    found = [outputs.detach().double().numpy(), tensor.grad.double().numpy()]
    found += [variable._value.grad.double().numpy() for variable in model.trainable_variables]
    found += [keras.ops.convert_to_numpy(variable).astype("float64") for variable in model.non_trainable_variables]
    for variable, value in zip(model.variables, before, strict=True):
        variable.assign(value)
        variable._value.grad = None
    assert "call" not in vars(layer)
    return found


@pytest.mark.parametrize("name", LAYERS)
def test_a_served_layer_gives_outputs_gradients_and_statistics_of_keras(name):
    make, shape = LAYERS[name]
    model, layer = _model(make, shape)
    assert [each.layer for each in find_served(model) if each.operation] == [layer]
    x = np.random.default_rng(0).normal(0.3, 1.2, (3, *shape)).astype("float32")
    for training in (True, False):
        plain, fused = (_run(model, layer, x, kernels, training) for kernels in ("keras", "fused"))
        assert len(plain) == len(fused)
        for one, other in zip(plain, fused, strict=True):
            np.testing.assert_allclose(other, one, rtol=2e-5, atol=2e-5)


RECURRENT = {
    "lstm": lambda: layers.LSTM(5),
    "lstm sequences": lambda: layers.LSTM(5, return_sequences=True),
    "lstm backwards": lambda: layers.LSTM(5, return_sequences=True, go_backwards=True),
    "lstm zeros": lambda: layers.LSTM(5, return_sequences=True, zero_output_for_mask=True),
    "lstm last zeros": lambda: layers.LSTM(5, zero_output_for_mask=True),
    "lstm dropout": lambda: layers.LSTM(5, dropout=0.4, seed=2),
    "lstm state, left to Keras": lambda: layers.LSTM(5, return_state=True),
    "gru": lambda: layers.GRU(5, return_sequences=True),
    "gru state": lambda: layers.GRU(5, return_state=True),
    "gru backwards": lambda: layers.GRU(5, go_backwards=True),
    "bidirectional": lambda: layers.Bidirectional(layers.LSTM(5, return_sequences=True)),
    "bidirectional last": lambda: layers.Bidirectional(layers.GRU(5), merge_mode="sum"),
}
MASK = np.array(
    [[1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 0, 0], [0, 0, 1, 1, 1, 1], [0, 1, 0, 0, 1, 0], [0, 0, 0, 0, 0, 0]], bool
)


@pytest.mark.parametrize("starts_with", ["zeros", "a state"])
@pytest.mark.parametrize("name", RECURRENT)
def test_a_recurrent_layer_with_any_mask_gives_outputs_and_gradients_of_keras(name, starts_with):
    x = np.random.default_rng(0).normal(size=(*MASK.shape, 4)).astype("float32")
    found = {}
    for kernels in ("keras", "fused"):
        keras.utils.set_random_seed(3)
        layer = RECURRENT[name]()
        layer.build((None, None, 4))
        parts = [layer.forward_layer, layer.backward_layer] if hasattr(layer, "forward_layer") else [layer]
        states = sum(2 if isinstance(part, layers.LSTM) else 1 for part in parts)
        state = None if starts_with == "zeros" else [torch.linspace(-1, 1, 25).reshape(5, 5)] * states
        model = keras.Sequential([layer])
        before = layer.get_config()
        tensor = torch.tensor(x, requires_grad=True)
        with FusedKernels(model).during() if kernels == "fused" else nullcontext():
            outputs = layer(tensor, mask=torch.tensor(MASK), initial_state=state, training=True)
        assert layer.get_config() == before
        outputs = list(outputs) if isinstance(outputs, tuple | list) else [outputs]
        torch.cat(
            [(each * torch.linspace(0.5, 1.5, each.numel()).view_as(each)).ravel() for each in outputs]
        ).sum().backward()
        found[kernels] = [*outputs, tensor.grad, *(variable.value.grad for variable in layer.trainable_variables)]
    for one, other in zip(*found.values(), strict=True):
        np.testing.assert_allclose(other.detach(), one.detach(), rtol=2e-5, atol=2e-5)


def test_recurrent_layers_that_the_kernels_do_not_compute_say_why():
    made = [
        layers.LSTM(3, activation="relu"),
        layers.LSTM(3, recurrent_dropout=0.1),
        layers.GRU(3, reset_after=False),
        layers.GRU(3, use_cudnn=False),
    ]
    x = keras.Input((5, 3))
    reasons = [each.why_not for layer in made for each in find_served(keras.Model(x, layer(x)))]
    assert reasons == [
        "activations other than tanh and sigmoid",
        "recurrent dropout",
        "reset_after=False",
        "use_cudnn=False",
    ]


@pytest.mark.parametrize("name", ["conv", "separable", "batch norm", "group norm", "max pool"])
def test_in_mixed_precision_a_served_layer_is_no_farther_from_float32_than_keras(name):
    make, shape = LAYERS[name]
    model, layer = _model(make, shape, "mixed_bfloat16")
    wide_model, wide_layer = _model(make, shape, "float32")
    x = torch.randn(4, *shape, generator=torch.Generator().manual_seed(0)).bfloat16().float().numpy()
    exact = _run(wide_model, wide_layer, x, "keras")
    plain, fused = (_run(model, layer, x, kernels) for kernels in ("keras", "fused"))
    for one, other, reference in zip(plain, fused, exact, strict=True):
        scale = np.abs(reference).max()
        assert np.abs(other - reference).max() <= 1.5 * np.abs(one - reference).max() + 4e-3 * scale


@pytest.mark.parametrize("mean", [0, 10, 1000])
def test_batch_norm_of_a_large_mean_is_no_farther_from_float64_than_keras(mean):
    make, shape = LAYERS["batch norm"]
    model, layer = _model(make, shape)
    x = (mean + np.random.default_rng(0).normal(0, 1, (16, *shape))).astype("float32")
    exact = _exact_batch_norm(layer, x)
    plain, fused = (_run(model, layer, x, kernels) for kernels in ("keras", "fused"))
    for one, other, reference in zip(plain, fused, exact, strict=True):
        assert np.abs(other - reference).max() <= 1.5 * np.abs(one - reference).max() + 3e-6 * np.abs(reference).max()


def _exact_batch_norm(layer, x):
    """What `_run` finds, by PyTorch in float64: a BatchNormalization of Keras's computes in float32 at the most."""
    x = torch.tensor(x, dtype=torch.float64, requires_grad=True)
    gamma, beta = (
        torch.tensor(keras.ops.convert_to_numpy(v)).double().requires_grad_() for v in (layer.gamma, layer.beta)
    )
    axes = tuple(range(x.ndim - 1))
    mean, variance = x.mean(axes), x.var(axes, correction=0)
    outputs = (x - mean) / torch.sqrt(variance + layer.epsilon) * gamma + beta
    (outputs * torch.linspace(0.5, 1.5, outputs.numel()).reshape(outputs.shape)).sum().backward()
    moved = [layer.momentum * start + (1 - layer.momentum) * new.detach() for start, new in ((0, mean), (1, variance))]
    return [each.detach().numpy() for each in (outputs, x.grad, gamma.grad, beta.grad, *moved)]


def test_batch_norm_of_a_single_value_keeps_the_biased_variance():
    model, layer = _model(lambda: layers.BatchNormalization(momentum=0.5), (4,))
    x = np.full((1, 4), 3.0, "float32")
    plain, fused = (_run(model, layer, x, kernels) for kernels in ("keras", "fused"))
    for one, other in zip(plain, fused, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-5, atol=1e-5)


def test_what_cannot_be_served_is_left_to_keras_and_named():
    inputs = keras.Input((8, 8, 4))
    x = layers.BatchNormalization(renorm=True, name="renorm")(inputs)
    x = layers.Conv2D(4, 3, data_format="channels_last", name="served")(x)
    x = layers.LayerNormalization(name="norm")(x)
    found = {each.path: (each.operation, each.why_not) for each in find_served(keras.Model(inputs, x))}
    assert found["renorm"] == (None, "renorm")
    assert found["served"][0] == "channels-last convolution"
    assert "norm" not in found


def _net():
    keras.utils.set_random_seed(5)
    inputs = keras.Input((12, 12, 3))
    x = inputs
    for width in (6, 8):
        y = layers.SeparableConv2D(width, 3, padding="same", use_bias=False)(x)
        y = layers.BatchNormalization()(y)
        y = layers.Activation("relu")(y)
        y = layers.Conv2D(width, 3, padding="same")(y)
        x = layers.Add()([layers.Conv2D(width, 1)(x), y])
        x = layers.MaxPooling2D()(x)
    x = layers.GlobalAveragePooling2D()(layers.Dropout(0.2, seed=1)(x))
    model = keras.Model(inputs, layers.Dense(4, activation="softmax", dtype="float32")(x))
    model.compile(keras.optimizers.SGD(0.05), "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def _batch(size=12):
    random = np.random.default_rng(2)
    return random.normal(size=(size, 12, 12, 3)).astype("float32"), random.integers(0, 4, size)


@pytest.mark.parametrize("recipe", [{}, {"micro_batch": 5}, {"remat": "blocks"}, {"remat": "blocks", "micro_batch": 5}])
def test_a_step_with_fused_kernels_ends_with_the_weights_of_the_plain_one(recipe):
    x, y = _batch()
    found = []
    for kernels in (None, "fused"):
        model = _net()
        stepper = TorchStepper(model, remat=recipe.get("remat"), kernels=kernels)
        for _ in range(2):
            logs = stepper.train(Batch(x=x, y=y), recipe.get("micro_batch", 12))
        found.append([float(logs["loss"]), *(keras.ops.convert_to_numpy(variable) for variable in model.variables)])
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-3, atol=2e-5)


def test_fit_with_fused_kernels_leaves_the_model_and_its_file_as_they_were(tmp_path):
    x, y = _batch()
    model = _net()
    names = [variable.path for variable in model.variables]
    config = model.to_json()
    history = fitroom.fit(model, x, y, batch_size=6, epochs=2, verbose=0, recipe=fitroom.Recipe(kernels="fused"))
    assert history.fitroom["recipe"]["kernels"] == "fused"
    assert [variable.path for variable in model.variables] == names
    assert not any("call" in vars(layer) for layer in model._flatten_layers())
    assert model.to_json() == config
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(loaded.predict(x, verbose=0), model.predict(x, verbose=0))


def test_two_hundred_steps_differ_no_more_than_two_plain_runs_that_differ_in_rounding():
    x, y = _batch(24)
    ends = {}
    for name, kernels, wobble in (("plain", None, 0), ("rounded", None, 1e-7), ("fused", "fused", 0)):
        model = _net()
        for variable in model.trainable_variables:
            variable.assign(keras.ops.convert_to_numpy(variable) * (1 + wobble))
        stepper = TorchStepper(model, kernels=kernels)
        for step in range(200):  # of tiny batches: two hundred are a few seconds
            rows = slice(8 * (step % 3), 8 * (step % 3) + 8)
            stepper.train(Batch(x=x[rows], y=y[rows]), 8)
        ends[name] = np.concatenate(
            [keras.ops.convert_to_numpy(variable).ravel() for variable in model.trainable_variables]
        )
    drift = np.abs(ends["rounded"] - ends["plain"]).mean()
    assert np.abs(ends["fused"] - ends["plain"]).mean() <= 5 * drift + 1e-5


def test_an_estimate_with_fused_kernels_is_smaller():
    model = _net()
    plain = fitroom.estimate(model, 1024, gpu="RTX 3060")
    fused = fitroom.estimate(model, 1024, recipe=fitroom.Recipe(kernels="fused"), gpu="RTX 3060")
    assert fused.peak_bytes < 0.8 * plain.peak_bytes
    assert fused.recipe.kernels == "fused"


@pytest.mark.parametrize("kind", ["forward_pre", "forward", "full_backward", "full_backward_pre"])
def test_hooks_of_the_user_are_still_called(kind):
    inner = keras.Sequential([keras.Input((12, 12, 3)), layers.Conv2D(2, 3)])
    inputs = keras.Input((12, 12, 3))
    model = keras.Model(inputs, layers.Dense(4)(layers.Flatten()(inner(inputs))))
    model.compile("sgd", "sparse_categorical_crossentropy")
    x, y = _batch()
    for owner in (inner, inner.layers[0]):
        seen = []
        handle = getattr(owner, f"register_{kind}_hook")(lambda *found, seen=seen: seen.append(found[0]))
        TorchStepper(model, kernels="fused").train(Batch(x=x, y=y), 12)
        handle.remove()
        assert seen
        assert all(each is owner for each in seen)


class _Block(layers.Layer):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = layers.Conv2D(4, 3, padding="same"), layers.BatchNormalization()

    def build(self, shape):
        self.conv.build(shape)
        self.norm.build(self.conv.compute_output_shape(shape))

    def call(self, x, training=None):
        return self.norm(self.conv(x), training=training)


def _masked():
    x = np.random.default_rng(0).normal(size=(*MASK.shape, 4)).astype("float32")
    return x * MASK[..., None]


WITHIN = {
    "a layer of the user's": (lambda: [_Block()], np.ones((4, 6, 5, 3), "float32"), 2),
    "TimeDistributed": (lambda: [layers.TimeDistributed(layers.Conv2D(4, 3))], np.ones((4, 2, 6, 5, 3), "float32"), 1),
    "Bidirectional": (lambda: [layers.Masking(), layers.Bidirectional(layers.LSTM(3))], _masked(), 2),
    "states as outputs": (lambda: [layers.Masking(), _with_state], _masked(), 1),
    "float32 in mixed precision": (lambda: [layers.LSTM(3, dtype="float32")], _masked(), 1),
}


def _with_state(x):
    outputs, state = layers.GRU(3, return_sequences=True, return_state=True)(x)
    return layers.Concatenate()([layers.Flatten()(outputs), state])


def _stack(make, x, policy="float32", kind=keras.Model):
    keras.utils.set_random_seed(3)
    keras.config.set_dtype_policy(policy)
    outputs = inputs = keras.Input(x.shape[1:], dtype="float32")
    for part in make():
        outputs = part(outputs)
    model = kind(inputs, layers.Dense(2, dtype="float32")(layers.Flatten()(outputs)))
    model.compile(keras.optimizers.SGD(0.005), "mse")
    return model


def _variables_after_steps(make, x, kernels):
    model = make()
    stepper = TorchStepper(model, kernels=kernels)
    for _ in range(2):
        stepper.train(Batch(x=x, y=np.ones((len(x), 2), "float32")), len(x))
    return model, [keras.ops.convert_to_numpy(variable) for variable in model.variables]


@pytest.mark.parametrize("name", WITHIN)
def test_layers_within_others_are_served_wherever_they_are_held(name):
    make, x, served = WITHIN[name]
    policy = "mixed_bfloat16" if "mixed" in name else "float32"
    found = [_variables_after_steps(lambda: _stack(make, x, policy), x, kernels) for kernels in (None, "fused")]
    assert sum(each.operation is not None for each in find_served(found[0][0])) == served
    for one, other in zip(found[0][1], found[1][1], strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-4, atol=2e-5)


class _OwnStep(keras.Model):
    """Calls itself in ways that Keras's `train_step` does not."""

    def train_step(self, data):
        x, y = data
        self.zero_grad()
        if self.way == "without `training`":
            outputs = self(x)
        elif self.way == "first not in training":
            outputs = self(x, training=False) + self(x, training=True)
        elif self.way == "with variables of its own":
            values = [[1.1 * each.value for each in group] for group in self._groups()]
            outputs = self.stateless_call(*values, x, training=True)[0]
            outputs = outputs + self.stateless_call(*values, x, training=False)[0]
        else:
            other = keras.Model(self.inputs, _Block()(self.inputs[0]) + self.layers[1].output)
            outputs = self(x, training=True) + 0 * other(x).mean()
        self.compute_loss(x=x, y=y, y_pred=outputs).backward()
        weights = [each for each in self.trainable_weights if each.value.grad is not None]
        with torch.no_grad():
            self.optimizer.apply([each.value.grad for each in weights], weights)
        return {}

    def _groups(self):
        return self.trainable_variables, self.non_trainable_variables


@pytest.mark.parametrize(
    "way", ["without `training`", "first not in training", "with variables of its own", "a model made in the step"]
)
def test_a_step_of_the_users_computes_what_it_does_with_keras(way):
    x = np.random.default_rng(1).normal(size=(4, 6, 5, 4)).astype("float32")

    def make():
        keras.utils.set_random_seed(7)
        inner = keras.Sequential([keras.Input((6, 5, 4)), layers.Conv2D(4, 3), layers.BatchNormalization()])
        model = _stack(
            lambda: [_Block(), lambda x: inner(x, training=True), layers.BatchNormalization()], x, kind=_OwnStep
        )
        model.way = way
        return model

    plain, fused = (_variables_after_steps(make, x, kernels)[1] for kernels in (None, "fused"))
    for one, other in zip(plain, fused, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("options", [{}, {"scale": False}, {"center": False}, {"scale": False, "center": False}])
def test_group_norm_as_the_first_layer_that_trains(options):
    x = np.random.default_rng(1).normal(size=(4, 6, 5, 4)).astype("float32")
    make = lambda: _stack(lambda: [layers.GroupNormalization(2, **options)], x)  # noqa: E731
    plain, fused = (_variables_after_steps(make, x, kernels)[1] for kernels in (None, "fused"))
    for one, other in zip(plain, fused, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-4, atol=1e-5)


def test_max_pooling_of_minus_infinity_stays_minus_infinity():
    inputs = keras.Input((5, 5, 1))
    model = keras.Model(inputs, layers.MaxPooling2D(4, 1, padding="same")(inputs))
    with FusedKernels(model).during():
        assert torch.isneginf(model(torch.full((1, 5, 5, 1), -torch.inf))).all()


def _conv(model):
    return next(layer for layer in model.layers if isinstance(layer, layers.Conv2D))


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_after_a_step_that_fails_the_model_is_as_it_was(error):
    def fail(module, args):
        raise error("on the way")

    model = _net()
    handle = _conv(model).register_forward_pre_hook(fail)
    x, y = _batch()
    stepper = TorchStepper(model, kernels="fused")
    with pytest.raises(error):
        stepper.train(Batch(x=x, y=y), 12)
    handle.remove()
    left = [layer for layer in model._flatten_layers() if {"call", "_run_through_graph"} & vars(layer).keys()]
    assert not left
    stepper.train(Batch(x=x, y=y), 12)


def test_a_call_that_the_user_sets_later_is_called_and_stays():
    model, seen = _net(), []
    x, y = _batch()
    stepper = TorchStepper(model, kernels="fused")
    stepper.train(Batch(x=x, y=y), 12)
    for owner in (_conv(model), model):
        own = owner.call
        vars(owner)["call"] = lambda *args, own=own, owner=owner, **kwargs: (seen.append(owner), own(*args, **kwargs))[
            1
        ]
    stepper.train(Batch(x=x, y=y), 12)
    stepper.train(Batch(x=x, y=y), 12)
    assert [owner is model for owner in seen] == [True, False] * 2
    assert "call" in vars(model)
    assert "call" in vars(_conv(model))


def test_a_thread_that_predicts_meanwhile_changes_no_step_and_leaves_nothing():
    x, y = _batch()
    ends = []
    for is_alone in (True, False):
        model, errors, stop = _net(), [], threading.Event()

        def predict(model=model, errors=errors, stop=stop):
            try:
                while not stop.is_set():
                    with torch.no_grad():
                        model(torch.tensor(x[:2]), training=False)
            except BaseException as error:  # a thread's errors are seen by nobody
                errors.append(error)

        stepper = TorchStepper(model, kernels="fused")
        stepper.prepare(Batch(x=x, y=y))
        thread = threading.Thread(target=predict)
        if not is_alone:
            thread.start()
        for _ in range(4):
            stepper.train(Batch(x=x, y=y), 12)
        stop.set()
        if not is_alone:
            thread.join()
        assert not errors
        assert not [each for each in model._flatten_layers() if {"call", "_run_through_graph"} & vars(each).keys()]
        ends.append([keras.ops.convert_to_numpy(variable) for variable in model.variables])
    for one, other in zip(*ends, strict=True):
        np.testing.assert_array_equal(other, one)


def _images_through_all_kinds():
    """A model in which images meet layers of every kind: served, plain, Keras's, one called twice, one frozen."""
    keras.utils.set_random_seed(3)
    inputs = keras.Input((9, 8, 3))
    x = layers.Conv2D(4, 3, activation="gelu")(layers.ZeroPadding2D(((1, 0), (2, 1)))(inputs))
    twice = layers.BatchNormalization(momentum=0.5)
    x = layers.Concatenate()([twice(x), twice(layers.ReLU(max_value=6.0)(x))])
    frozen = layers.BatchNormalization()
    frozen.trainable = False
    gate = layers.Conv2D(8, 1, activation="sigmoid")(layers.GlobalAveragePooling2D(keepdims=True)(x))
    x = layers.Add()([layers.Multiply()([frozen(x), gate]), layers.Conv2DTranspose(8, 3, padding="same")(x)])
    x = layers.DepthwiseConv2D(3, depth_multiplier=2)(layers.LeakyReLU()(layers.AveragePooling2D(2)(x)))
    outputs = layers.Dense(2, dtype="float32")(layers.Flatten()(x))
    model = keras.Model(inputs, outputs)
    model.compile(keras.optimizers.SGD(0.05), "mse")
    return model


def test_images_that_pass_from_layer_to_layer_end_as_with_keras():
    x = np.random.default_rng(4).normal(2, 1, (6, 9, 8, 3)).astype("float32")
    found = [_variables_after_steps(_images_through_all_kinds, x, kernels)[1] for kernels in (None, "fused")]
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-3, atol=2e-5)


class _Counter(torch.utils._python_dispatch.TorchDispatchMode):
    """Counts operations by name."""

    def __init__(self):
        super().__init__()
        self.found = Counter()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.found[function.overloadpacket.__name__] += 1
        return function(*args, **(kwargs or {}))


def test_layers_with_images_cost_the_host_a_few_operations():
    keras.config.set_dtype_policy("mixed_bfloat16")
    outputs = inputs = keras.Input((8, 8, 4))
    for _ in range(10):
        outputs = layers.Activation("relu")(layers.BatchNormalization()(layers.Conv2D(4, 3, padding="same")(outputs)))
    model = keras.Model(inputs, layers.Dense(2, dtype="float32")(layers.Flatten()(outputs)))
    model.compile(keras.optimizers.SGD(0.05), "mse")
    x, y = np.ones((2, 8, 8, 4), "float32"), np.ones((2, 2), "float32")
    stepper = TorchStepper(model, kernels="fused")
    stepper.train(Batch(x=x, y=y), 2)
    with _Counter() as counter:
        stepper.train(Batch(x=x, y=y), 2)
    assert counter.found["native_batch_norm"] == 10
    assert counter.found["_to_copy"] < 10  # weights are not copied one by one, forward and backward
    assert counter.found["_foreach_lerp_"] == 1
    assert counter.found["permute"] < 30  # two of each kernel, and those at the ends


def test_a_frozen_weight_stays_without_a_gradient_beside_one_that_trains():
    frozen, trained = torch.rand(3, 3, 2, 2), torch.rand(3, 3, 2, 2, requires_grad=True)
    copies = copy_weights([Weight(value, as_weight, torch.bfloat16) for value in (frozen, trained)])
    assert [copy.requires_grad for copy in copies] == [False, True]


def test_gradients_of_copied_weights_can_be_differentiated():
    kernel = torch.rand(2, 2, 3, 4, dtype=torch.float64, requires_grad=True)
    depthwise = torch.rand(2, 2, 3, 2, dtype=torch.float64, requires_grad=True)
    bias = torch.rand(4, dtype=torch.float64, requires_grad=True)

    def squares(*values):
        views = (as_weight, as_depthwise_weight, None)
        weights = [Weight(value, view, torch.float64) for value, view in zip(values, views, strict=True)]
        return tuple(copy**2 for copy in copy_weights(weights))

    assert torch.autograd.gradgradcheck(squares, (kernel, depthwise, bias))
    assert torch.autograd.gradcheck(squares, (kernel, depthwise, bias))
