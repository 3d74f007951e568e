"""Attention as the target card computes it: decided while a step is traced, on a machine that has no card."""

import keras
import pytest

from fitroom.backends.jax.trace.card_attention import decide_attention_for, uses_fused_attention
from fitroom.backends.jax.trace.compiler import StepCompiler
from fitroom.backends.jax.trace.step import training_step
from fitroom.backends.jax.trace.traceable import make_traceable
from fitroom.cards.catalogue import find_card
from fitroom.keras_model.prepared import prepare_model
from fitroom.memory.step import StepRequest

pytestmark = pytest.mark.backends("jax")


def attention_net(dtype):
    words = keras.Input((64, 128), dtype=dtype)
    seen = keras.layers.MultiHeadAttention(2, 64, dtype=dtype)(words, words)
    model = keras.Model(words, keras.layers.Dense(2)(keras.layers.GlobalAveragePooling1D()(seen)))
    model.compile("sgd", "mse")
    return model


def is_fused(card_name, dtype):
    card = find_card(card_name)
    request = StepRequest(batch_size=2, card=card)
    with prepare_model(attention_net(dtype), request) as ready, make_traceable(ready.model), decide_attention_for(card):
        return StepCompiler(training_step(ready), card).uses_fused_attention


@pytest.mark.parametrize(
    ("card_name", "dtype", "fused"), [("H200", "bfloat16", True), ("T4", "bfloat16", False), ("H200", "float32", False)]
)
def test_attention_is_fused_in_half_precision_on_cards_that_can(card_name, dtype, fused):
    assert is_fused(card_name, dtype) == fused


def test_a_program_without_attention_is_told_from_one_with_it():
    assert uses_fused_attention("stablehlo.custom_call @__cudnn$fmhaSoftmax(%0)")
    assert not uses_fused_attention("stablehlo.dot_general %0, %1")
