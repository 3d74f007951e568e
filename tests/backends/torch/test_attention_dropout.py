"""Attention with fused dropout computes the same but for what is dropped, and draws that again where it must."""

import keras
import numpy as np
import pytest
import torch

import fitroom
from fitroom.backends.torch.kernels.attention import fused_attention
from fitroom.backends.torch.train.stepper import TorchStepper
from fitroom.batch import Batch
from fitroom.errors import InputError
from fitroom.keras_model.attention import layers_with_attention_dropout

layers = keras.layers
MASKS = {
    "none": {},
    "causal": {"use_causal_mask": True},
    "explicit": {"attention_mask": np.array([[[1, 1, 0, 1, 0]] * 4 + [[0] * 5]] * 3, bool)},
    "both": {"use_causal_mask": True, "attention_mask": np.array([[[1, 1, 0, 1, 0]] * 5] * 3, bool)},
}


def _attention(rate=0.4):
    keras.utils.set_random_seed(4)
    layer = layers.MultiHeadAttention(2, 3, dropout=rate)
    layer.build((None, 5, 6), (None, 5, 6))
    return layer


def _inputs():
    return torch.tensor(np.random.default_rng(0).normal(size=(3, 5, 6)).astype("float32"), requires_grad=True)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("mask", MASKS)
def test_on_the_cpu_which_draws_the_same_numbers_it_computes_what_keras_does(mask, training):
    layer, given, found = _attention(), MASKS[mask], []
    given = {name: torch.tensor(value) if name == "attention_mask" else value for name, value in given.items()}
    for fused in ([], [layer]):
        x = _inputs()
        torch.manual_seed(1)
        with fused_attention(fused):
            outputs = layer(x, x, training=training, **given)
            assert layer(x, x, return_attention_scores=True, **given)[1].shape == (3, 2, 5, 5)
        (outputs * torch.linspace(0.5, 1.5, outputs.numel()).view_as(outputs)).sum().backward()
        found.append([outputs.detach(), x.grad])
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-5, atol=1e-5)
    assert "_compute_attention" not in vars(layer)


def _net(rate=0.5):
    keras.utils.set_random_seed(5)
    x = inputs = keras.Input((5, 6))
    for _ in range(2):
        x = layers.LayerNormalization()(layers.Add()([x, layers.MultiHeadAttention(2, 3, dropout=rate)(x, x)]))
    model = keras.Model(inputs, layers.Dense(2)(layers.Flatten()(x)))
    model.compile(keras.optimizers.SGD(0.1), "mse")
    return model


def _trained(remat=None, rate=0.5):
    model = _net(rate)
    stepper = TorchStepper(model, remat=remat, attention_dropout="fused")
    x = np.random.default_rng(1).normal(size=(4, 5, 6)).astype("float32")
    for _ in range(2):
        stepper.train(Batch(x=x, y=np.ones((4, 2), "float32")), 4)
    return [keras.ops.convert_to_numpy(variable) for variable in model.trainable_variables]


def test_it_is_drawn_anew_in_each_run_of_the_same_seed_and_again_where_it_is_recomputed():
    once, again, recomputed, without = _trained(), _trained(), _trained("blocks"), _trained(rate=0.0)
    for one, other in zip(once, again, strict=True):
        np.testing.assert_array_equal(other, one)
    for one, other in zip(once, recomputed, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-5, atol=1e-6)
    assert max(np.abs(one - other).max() for one, other in zip(once, without, strict=True)) > 1e-3


def test_a_run_that_is_resumed_ends_as_one_that_was_not(tmp_path):
    x = np.random.default_rng(1).normal(size=(8, 5, 6)).astype("float32")
    y = np.ones((8, 2), "float32")
    ends = []
    for stops in ((2,), (1, 2)):
        for epochs in stops:
            model = _net()
            fitroom.fit(
                model,
                x,
                y,
                batch_size=4,
                epochs=epochs,
                verbose=0,
                run_dir=tmp_path / str(stops),
                recipe=fitroom.Recipe(attention_dropout="fused"),
            )
        ends.append([keras.ops.convert_to_numpy(variable) for variable in model.trainable_variables])
    for one, other in zip(*ends, strict=True):
        np.testing.assert_array_equal(other, one)


def test_an_estimate_holds_no_scores():
    inputs = keras.Input((512, 32))
    model = keras.Model(inputs, layers.MultiHeadAttention(4, 8, dropout=0.1)(inputs, inputs, use_causal_mask=True))
    model.compile("sgd", "mse")
    assert len(layers_with_attention_dropout(model)) == 1
    plain, fused = (
        fitroom.estimate(model, 4, recipe=fitroom.Recipe(attention_dropout=dropout), gpu="H200").by_kind["activations"]
        for dropout in (None, "fused")
    )
    assert fused < 0.1 * plain


def test_it_is_refused_where_no_attention_has_dropout():
    inputs = keras.Input((5, 6))
    model = keras.Model(inputs, layers.MultiHeadAttention(2, 3)(inputs, inputs))
    with pytest.raises(InputError, match="with dropout"):
        fitroom.estimate(model, 4, recipe=fitroom.Recipe(attention_dropout="fused"), gpu="H200")
