"""The first steady steps of a planned training, measured by TensorFlow's own allocator, correct the next plan."""

import keras
import numpy as np
from keras import layers

import fitroom
from fitroom.events import EventKind


def net():
    keras.utils.set_random_seed(7)
    model = keras.Sequential(
        [keras.Input((64,)), layers.Dense(512, activation="relu"), layers.Dense(512), layers.Dense(3)]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("sgd", loss, jit_compile=False)
    return model


def test_the_first_steps_correct_the_next_plan(tmp_path, monkeypatch):
    monkeypatch.setenv("FITROOM_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("FITROOM_NO_CACHE", raising=False)
    x, y = np.ones((8 * 2048, 64), "float32"), np.zeros(8 * 2048, "int32")
    model = net()
    plan = fitroom.plan(model, 2048, budget="300MiB")
    assert plan.estimate.correction is None
    history = fitroom.fit(model, x, y, batch_size=2048, plan=plan, verbose=0)
    [event] = [one for one in history.fitroom["events"] if one["kind"] == EventKind.STEP_MEASURED]
    assert event["predicted_bytes"] == plan.estimate.peak_bytes
    # Weights and the activations of three layers in float32 are in memory at once, whatever else is.
    assert event["measured_bytes"] > 4 * (model.count_params() + 2048 * (512 + 512))

    again = fitroom.plan(net(), 2048, budget="300MiB")
    assert again.estimate.uncorrected_bytes == plan.estimate.peak_bytes
    assert abs(again.estimate.peak_bytes - event["measured_bytes"]) < 1e-4 * event["measured_bytes"]
    assert any(note.startswith("Corrected by a measured step") for note in again.notes)

    monkeypatch.setenv("FITROOM_NO_CORRECTIONS", "1")
    assert fitroom.estimate(net(), 2048, recipe=plan.recipe).correction is None
