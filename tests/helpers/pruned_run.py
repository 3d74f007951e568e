"""A training that sets more and more weights to zero, in the folder that is given; it prints what came of it.

python pruned_run.py RUN_DIR
"""

import hashlib
import json
import sys
import time

import keras
import numpy as np
from keras import layers

import fitroom

keras.utils.set_random_seed(3)
random = np.random.default_rng(7)
x = random.normal(size=(96, 10)).astype("float32")
y = (x[:, 0] > 0).astype("int32")
model = keras.Sequential(
    [keras.Input((10,)), layers.Dense(24, activation="relu"), layers.Dense(16, activation="relu"), layers.Dense(2)]
)
model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))


class Slow(keras.callbacks.Callback):
    """Gives a kill the time to come between two batches."""

    def on_train_batch_begin(self, batch, logs=None):
        time.sleep(0.02)


schedule = fitroom.lean.PolynomialSchedule(begin=2, end=40, frequency=3)
pruning = fitroom.lean.prune(model, 0.8, structured=False, schedule=schedule)
print("begun", flush=True)
fitroom.fit(
    model,
    x,
    y,
    batch_size=16,
    epochs=8,
    verbose=0,
    callbacks=[pruning, Slow()],
    run_dir=sys.argv[1],
    checkpoint_batches=1,
)
digest = hashlib.sha256(b"".join(np.ascontiguousarray(each).tobytes() for each in model.get_weights())).hexdigest()
print("RESULT " + json.dumps({"sparsity": round(pruning.sparsity(model), 6), "weights": digest}))
