"""What is assumed of TensorFlow's allocator under a jitted step holds in real training, on its CPU allocator."""

import json

import pytest

from pressure import limited
from processes import needs
from ready_process import run_forked

MIB = 2**20
ROOMY_MIB = 2000
KERNEL_MIB = 16
FIRST_KERNEL_MIB = 8

PROGRAM = """
import json

import keras
import numpy as np
import tensorflow as tf
from keras import layers

from fitroom.keras_model.prepared import prepare_model
from fitroom.backends.tensorflow.trace.jitted.placement import block_bytes
from fitroom.backends.tensorflow.trace.jitted.required import smallest_limit_bytes
from fitroom.backends.tensorflow.trace.borrowed_variables import borrow_values
from fitroom.backends.tensorflow.trace.step import training_step
from fitroom.cards.catalogue import find_card
from fitroom.memory.step import StepRequest

BATCH = 256

class Batches(keras.utils.PyDataset):
    def __len__(self):
        return 3

    def __getitem__(self, index):
        return np.zeros((BATCH, 1024), "float32"), np.zeros(BATCH, "int32")

def memory(name):
    return tf.config.experimental.get_memory_info("CPU:0")[name]

def hidden():
    return [layers.Dense(2048, activation="relu") for _ in range(4)]

model = keras.Sequential([keras.Input((1024,)), *hidden(), layers.Dense(5, activation="softmax")])
found = {"weights": memory("current"), "making weights": memory("peak")}
model.compile("adam", "sparse_categorical_crossentropy", jit_compile=True)
for epoch in ("first", "steady"):
    tf.config.experimental.reset_memory_stats("CPU:0")
    model.fit(Batches(), verbose=0)
    found[epoch] = memory("peak")
request = StepRequest(batch_size=BATCH, card=find_card("T4"))
with prepare_model(model, request, borrow_values) as ready:
    step = training_step(ready)
    smallest = smallest_limit_bytes(step, block_bytes(step, found["steady"]), found["steady"])
    found["required"] = smallest + step.batch_bytes
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Train in a process whose allocator has a limit, and say what it counted."""
    needs("tensorflow")

    def trained(limit_mib: int) -> dict[str, int]:
        folder, env = tmp_path_factory.mktemp("placement"), limited(limit_mib)
        done = run_forked("-c", PROGRAM, backend="tensorflow", cwd=folder, env=env)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    return trained


@pytest.fixture(scope="module")
def roomy(trained):
    return trained(ROOMY_MIB)


def test_a_weight_takes_two_more_pieces_while_it_is_made(roomy):
    assert roomy["making weights"] - roomy["weights"] == pytest.approx(2 * KERNEL_MIB * MIB, abs=MIB)


def test_in_the_first_step_slots_leave_the_zeros_they_shared(roomy):
    """One piece of zeros for each shape: all large kernels but the first are alike."""
    assert roomy["first"] - roomy["steady"] == pytest.approx((KERNEL_MIB + FIRST_KERNEL_MIB) * MIB, abs=2 * MIB)


def test_training_runs_under_the_limit_that_is_said_to_be_needed(roomy, trained):
    limit_mib = -(-roomy["required"] // MIB)
    assert limit_mib < ROOMY_MIB
    assert roomy["first"] <= roomy["required"] < 1.5 * roomy["first"]
    assert trained(limit_mib)["steady"] <= roomy["required"]
