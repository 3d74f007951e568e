"""A child program of torchrun: real out-of-memory in the second of two processes, on the CPU.

Its last line of stdout is JSON: how often memory ran out, and how far the weights are from those of one process.
"""

import json
import os
import resource
from pathlib import Path

import keras
import numpy as np

import fitroom

MIB = 2**20
SAMPLES = 32
ROOM_BYTES = 240 * MIB
"""Of the second process. Its share, 16 samples, takes some 50 MiB for each of eight activations."""


def make_model():
    keras.utils.set_random_seed(1)
    x = inputs = keras.Input((64,))
    x = keras.layers.RepeatVector(12_800)(keras.layers.Dense(64)(x))
    for _ in range(4):
        x = keras.layers.Activation("silu")(x)
    x = keras.layers.GlobalAveragePooling1D()(x)
    model = keras.Model(inputs, keras.layers.Dense(3)(x))
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


random = np.random.default_rng(0)
x, y = random.normal(size=(SAMPLES, 64)).astype("float32"), random.integers(0, 3, SAMPLES)
data = {"x": x, "y": y, "batch_size": SAMPLES, "shuffle": False, "verbose": 0}
expected = make_model()
expected.fit(**data)
model = make_model()
if os.environ["RANK"] == "1":
    taken_bytes = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (taken_bytes + ROOM_BYTES,) * 2)
with fitroom.devices("all"):
    history = fitroom.fit(model, **data)
if os.environ["RANK"] == "0":
    pairs = zip(model.get_weights(), expected.get_weights(), strict=True)
    found = {
        "out_of_memory": history.fitroom["out_of_memory"],
        "micro_batch": history.fitroom["micro_batch"],
        "said": [event["message"] for event in history.fitroom["events"]],
        "difference": max(float(np.abs(one - other).max()) for one, other in pairs),
    }
    print(json.dumps(found), flush=True)
