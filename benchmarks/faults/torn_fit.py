"""Many runs of `fitroom.fit` with torn files, in one process: each resumes to the same result or is refused clearly.

    python torn_fit.py FOLDER SEED COUNT

Prints a line for each: TRIED and, as JSON, what was torn, what was wrong or null, and whether a clear error told it.
"""

import contextlib
import json
import random
import shutil
import sys
import warnings
from pathlib import Path

import keras
import numpy as np

import fitroom
from faults.torn import tear_files

warnings.simplefilter("ignore")
FOLDER, SEED, COUNT = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])


class Stopped(Exception):  # noqa: N818
    """Ends a training in its middle."""


class StopAt(keras.callbacks.Callback):
    """Raises after so many batches."""

    def __init__(self, number):
        super().__init__()
        self.left = number

    def on_train_batch_end(self, batch, logs=None):
        """Count."""
        self.left -= 1
        if not self.left:
            raise Stopped


def trained(run, *callbacks):
    """A small training with an average of weights, which only the end puts in place."""
    keras.utils.set_random_seed(3)
    random_numbers = np.random.default_rng(1)
    x = random_numbers.normal(size=(40, 6)).astype("float32")
    y = (x[:, 0] > 0).astype("int32")
    layers = keras.layers
    model = keras.Sequential([keras.Input((6,)), layers.Dense(5, "relu"), layers.BatchNormalization(), layers.Dense(2)])
    model.compile(
        keras.optimizers.Adam(0.01, use_ema=True, ema_momentum=0.8),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    history = fitroom.fit(
        model,
        x,
        y,
        batch_size=10,
        epochs=3,
        verbose=0,
        seed=1,
        run_dir=run,
        checkpoint_batches=1,
        callbacks=[*callbacks],
    )
    weights = [keras.ops.convert_to_numpy(each).tolist() for each in [*model.variables, *model.optimizer.variables]]
    return {"weights": weights, "epochs": list(history.epoch), "loss": [float(one) for one in history.history["loss"]]}


FOLDER.mkdir(parents=True, exist_ok=True)
expected = trained(FOLDER / "finished")
with contextlib.suppress(Stopped):
    trained(FOLDER / "stopped", StopAt(7))
assert trained(FOLDER / "finished") == expected
for number in range(COUNT):
    chance = random.Random(f"{SEED}-{number}")
    run = FOLDER / f"run{number}"
    kind = chance.choice(("finished", "stopped"))
    shutil.copytree(FOLDER / kind, run)
    what = f"{kind} run, {tear_files(run, chance)}"
    problem, is_told = None, False
    try:
        if trained(run) != expected:
            problem = "another result"
    except fitroom.FitroomError:
        is_told = True  # what cannot be had
    except Exception as error:
        problem = f"{type(error).__name__}: {str(error)[:300]}"
    print("TRIED", json.dumps([what, problem, is_told]), flush=True)
    shutil.rmtree(run, ignore_errors=True)
