"""The estimate from the jaxpr alone, of real Keras steps."""

import json
from pathlib import Path

import keras
import pytest
from keras import layers

from fitroom.backends.jax.trace.jaxpr.estimate import TYPICAL_ERROR, timeline_of_jaxpr
from fitroom.backends.jax.trace.step import predict_step, training_step
from fitroom.cards.catalogue import find_card
from fitroom.keras_model.prepared import prepare_model
from fitroom.memory.step import StepRequest

ROOT = Path(__file__).parents[3]


def cnn():
    return keras.Sequential(
        [
            keras.Input((64, 64, 3)),
            layers.Conv2D(32, 3, padding="same", use_bias=False, name="first_conv"),
            layers.BatchNormalization(),
            layers.ReLU(),
            layers.MaxPooling2D(),
            layers.Conv2D(64, 3, padding="same", activation="relu", name="second_conv"),
            layers.GlobalAveragePooling2D(),
            layers.Dropout(0.5),
            layers.Dense(5, activation="softmax", name="head"),
        ]
    )


def lstm():
    return keras.Sequential([keras.Input((40, 16)), layers.LSTM(64, name="memory"), layers.Dense(5)])


def dense():
    return keras.Sequential([keras.Input((64,)), layers.Dense(128, use_bias=False), layers.Dense(32, use_bias=False)])


def facts(make, batch_size, *, fused, training=True, optimizer="adam"):
    model = make()
    request = StepRequest(batch_size=batch_size, card=find_card("T4"), optimizer=optimizer, training=training)
    with prepare_model(model, request) as ready:
        step = training_step(ready) if training else predict_step(ready)
    timeline = timeline_of_jaxpr(step, fused=fused)
    return {
        "peak": timeline.peak_bytes,
        "arguments": sum(argument.size_bytes for argument in step.arguments),
        "by_kind": timeline.by_kind(),
        "by_phase": timeline.by_phase(),
        "layers": sorted(timeline.by_layer()),
        "names": sorted({moment.name for moment in timeline.moments}),
    }


@pytest.fixture(scope="module")
def traced():
    return {
        "cnn": [facts(cnn, batch_size, fused=True) for batch_size in (32, 64, 96)],
        "cnn unfused": [facts(cnn, batch_size, fused=False) for batch_size in (32, 64, 96)],
        "lstm": facts(lstm, 32, fused=True),
        "long batch lstm": facts(lstm, 64, fused=True),
        "lstm unfused": facts(lstm, 32, fused=False),
        "dense predict unfused": facts(dense, 16, fused=False, training=False),
        "dense predict": facts(dense, 16, fused=True, training=False),
        "dense unfused": facts(dense, 1, fused=False, optimizer="sgd"),
        "typical error": TYPICAL_ERROR,
    }


def every_step(traced):
    for found in traced.values():
        yield from found if isinstance(found, list) else [found] if isinstance(found, dict) else []


def test_the_peak_holds_state_and_batch_and_more(traced):
    for step in every_step(traced):
        assert step["peak"] > step["arguments"]


def test_kinds_sum_to_the_peak(traced):
    for step in every_step(traced):
        assert sum(step["by_kind"].values()) == step["peak"]


def test_memory_is_linear_in_the_batch(traced):
    for name in ("cnn", "cnn unfused"):
        small, middle, large = (step["peak"] for step in traced[name])
        assert middle > 1.8 * small
        assert large - middle == pytest.approx(middle - small, rel=0.01)


def test_fusing_saves_memory(traced):
    for fused, unfused in zip(traced["cnn"], traced["cnn unfused"], strict=True):
        assert fused["peak"] < unfused["peak"]


def test_layers_are_named(traced):
    for name in ("cnn", "cnn unfused"):
        assert {"first_conv", "second_conv", "head"} <= set(traced[name][0]["layers"])


def test_every_phase_of_training_is_there(traced):
    for step in (traced["cnn"][0], traced["cnn unfused"][0]):
        assert all(step["by_phase"].values())


def test_a_convolution_keeps_what_the_backward_pass_reads(traced):
    convolved_bytes = 32 * (64 * 64 * 32 + 32 * 32 * 64) * 4
    step = traced["cnn"][0]
    assert step["by_phase"]["forward"] >= step["arguments"] + convolved_bytes
    assert step["by_kind"]["activations"] >= 32 * 64 * 64 * 32 * 4


def test_loops_are_followed(traced):
    assert "scan" in traced["lstm"]["names"]
    hidden_bytes = 32 * 64 * 4
    for step in (traced["lstm"], traced["lstm unfused"]):
        # The backward pass reads what each of the 40 rounds left: at least the four gates or what they are made of.
        assert step["peak"] - step["arguments"] > 40 * 4 * hidden_bytes
    assert traced["long batch lstm"]["peak"] > 1.5 * traced["lstm"]["peak"]


def test_an_unfused_predict_step_is_what_one_counts_by_hand(traced):
    weights_bytes = (64 * 128 + 128 * 32) * 4
    batch_bytes = 16 * 64 * 4
    hidden_bytes, output_bytes = 16 * 128 * 4, 16 * 32 * 4
    step = traced["dense predict unfused"]
    assert step["peak"] == weights_bytes + batch_bytes + hidden_bytes + output_bytes
    assert step["by_kind"]["activations"] == hidden_bytes + output_bytes


def test_predictions_are_not_written_over_the_state(traced):
    step = traced["dense predict"]
    assert step["by_kind"]["activations"] == (16 * 128 + 16 * 32) * 4


def test_an_unfused_update_holds_old_and_new_weights_and_gradients(traced):
    step = traced["dense unfused"]
    first_bytes, second_bytes = 64 * 128 * 4, 128 * 32 * 4
    # The larger kernel's gradient times the learning rate lives beside them for a moment.
    held_bytes = 3 * (first_bytes + second_bytes)
    assert held_bytes < step["peak"] < held_bytes + first_bytes + 10_000


def test_the_error_told_is_the_one_benchmarked(traced):
    report = json.loads((ROOT / "benchmarks" / "results" / "jax_traced.json").read_text())
    assert traced["typical error"] == report["summary"]["held-out"]["median_error"]
