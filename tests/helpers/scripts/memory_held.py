"""A training in which something takes most of the memory once and never gives it back.

    python memory_held.py MARK BATCH

It does so before this batch, and leaves the file MARK, after which it does not do it again.
"""

import hashlib
import sys
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
from keras import layers

MARK, BATCH = Path(sys.argv[1]), int(sys.argv[2])
MIB = 2**20
held = []


class Holds(keras.callbacks.Callback):
    def on_train_batch_begin(self, batch, logs=None):
        if batch == BATCH and not MARK.exists():
            MARK.touch()
            held.extend(tf.zeros((MIB // 4,)) for _ in range(70))


keras.utils.set_random_seed(3)
model = keras.Sequential(
    [
        keras.Input((192, 192, 3)),
        layers.Conv2D(8, 3, activation="relu"),
        layers.Conv2D(8, 3, activation="relu"),
        layers.GlobalAveragePooling2D(),
        layers.Dense(5),
    ]
)
model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
random = np.random.default_rng(0)
x, y = random.random((8, 192, 192, 3), "float32"), random.integers(0, 5, 8)
history = model.fit(x, y, batch_size=2, verbose=0, callbacks=[Holds()])
weights = b"".join(np.ascontiguousarray(variable.numpy()).tobytes() for variable in model.trainable_variables)
print("updates", int(model.optimizer.iterations), "loss", *history.history["loss"])
print("weights", hashlib.sha256(weights).hexdigest())
