"""Out of memory while Keras builds a model: real, on PyTorch in a process whose address space is limited."""

import json
import os
import subprocess
import sys

import pytest

from processes import hide_tensorflow, needs

BUILDS = """
import json, resource
import keras, numpy as np, torch
import fitroom

MIB = 2**20


class RunsToTellShapes(keras.Model):
    "Its shapes cannot be told without computing, so that Keras builds it by running it. It takes 64 MiB a sample."

    def __init__(self):
        super().__init__()
        self.dense, self.out, self.sizes = keras.layers.Dense(7), keras.layers.Dense(1), []

    def call(self, x):
        if bool((x > 1e6).any()):  # what a tensor without values cannot answer
            return self.out(x)
        self.sizes.append(int(x.shape[0]))
        scratch = torch.empty((x.shape[0], 64 * MIB // 4))
        return self.out(self.dense(x)) + 0.0 * scratch.shape[0]


class OfTheBatch(keras.layers.Layer):
    "Has a state for each sample of the batch that it was built with."

    def build(self, shape):
        self.each = self.add_weight(shape=(shape[0], 1))

    def call(self, x):
        return x + self.each


def train(model, x):
    model.compile("sgd", "mse", metrics=["mae"])
    return fitroom.fit(model, x, x[:, :1], batch_size=32, verbose=0)


x = np.random.default_rng(0).random((32, 6)).astype("float32")
train(keras.Sequential([keras.layers.Dense(1)]), x)  # what PyTorch loads with its first step is loaded
taken = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (taken + 900 * MIB,) * 2)
model = RunsToTellShapes()
history = train(model, x)
by_batch = keras.Sequential([OfTheBatch(), keras.layers.Dense(1)])
train(by_batch, x)
print("RESULT", json.dumps({
    "built_from": model.sizes[0],
    "micro_batch": history.fitroom["micro_batch"],
    "updates": int(model.optimizer.iterations),
    "variables": len(model.variables),
    "of_the_batch": list(by_batch.layers[0].each.shape),
}))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the limit of a process's memory is Linux's")
def test_a_model_that_keras_builds_by_running_it_is_built_from_a_few_samples(tmp_path):
    needs("torch")
    script = tmp_path / "builds.py"
    script.write_text(BUILDS)
    done = subprocess.run(
        [sys.executable, str(script)],
        env=hide_tensorflow(os.environ | {"KERAS_BACKEND": "torch"}),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.partition("RESULT ")[2])
    assert found["built_from"] <= 3
    assert found["micro_batch"] < 32
    assert found["updates"] == 1
    assert found["variables"] == 4
    assert found["of_the_batch"] == [32, 1]
