"""Updates on TensorFlow with no room for old weights beside new ones, in processes whose allocators have a limit."""

import json

import pytest

from pressure import limited
from processes import needs
from ready_process import run_forked

# Much weight and little else: room for the gradients, and then not for the update.

ROOMY_MIB = 1000
IN_PLACE_MIB = 118
"""Weights, two slots and gradients are 69 MiB, what Adam computes from them some 20; old values would be 51 more."""

TOO_SMALL_MIB = 96

PROGRAM = """
import hashlib, json, sys

import keras
import numpy as np
import tensorflow as tf

from fitroom.backends.choose import current_backend
from fitroom.batch import Batch

class OwnStep(keras.Sequential):
    def train_step(self, data):
        return super().train_step(data)

keras.utils.set_random_seed(7)
kind = OwnStep if sys.argv[2] == "own step" else keras.Sequential
model = kind([keras.Input((1500,)), *[keras.layers.Dense(1500) for _ in range(2)]])
model.compile("adam", "mse", jit_compile=False)
random = np.random.default_rng(1)
x, y = (random.random((8, 1500), "float32") for _ in range(2))
stepper = current_backend().stepper(model, jit=None)
stepper.prepare(Batch(x=x, y=y))

def digest():
    variables = [*model.variables, *model.optimizer.variables, *model.metrics_variables]
    return hashlib.sha256(b"".join(np.array(variable.value.numpy()).tobytes() for variable in variables)).hexdigest()

found = {"before": digest(), "out of memory": False}
try:
    for _ in range(3):
        stepper.train(Batch(x=x, y=y), int(sys.argv[1]))
except tf.errors.ResourceExhaustedError:
    found["out of memory"] = True
print(json.dumps(found | {"after": digest(), "in place": stepper._updates_in_place}))
"""


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Three steps under a limit: what state was before and after, and how it went."""
    needs("tensorflow")

    def trained(limit_mib, micro_batch=8, kind="keras's"):
        folder, env = tmp_path_factory.mktemp("updates"), limited(limit_mib)
        done = run_forked("-c", PROGRAM, str(micro_batch), kind, backend="tensorflow", cwd=folder, env=env)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    return trained


@pytest.mark.parametrize(
    "how",
    [
        pytest.param((8, "keras's"), id="whole", marks=pytest.mark.slow),
        pytest.param((4, "keras's"), id="cut"),
        pytest.param((8, "own step"), id="own step", marks=pytest.mark.slow),
    ],
)
def test_an_update_without_room_for_old_weights_beside_new_ones_is_done_in_place(trained, how):
    roomy, tight = (trained(limit_mib, *how) for limit_mib in (ROOMY_MIB, IN_PLACE_MIB))
    assert not roomy["in place"]
    assert tight["in place"]
    assert not tight["out of memory"]
    assert tight["after"] == roomy["after"] != roomy["before"]


def test_an_update_that_runs_out_of_memory_leaves_every_bit_as_it_was(trained):
    small = trained(TOO_SMALL_MIB)
    assert small["out of memory"]
    assert small["in place"]  # it came as far as that
    assert small["after"] == small["before"] == trained(ROOMY_MIB)["before"]
