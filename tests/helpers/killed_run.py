"""A training with all that must survive a kill, in the folder that is given; at the end it prints what came of it.

    python killed_run.py RUN_DIR

Random in every corner (dropout, shuffling, augmentation from NumPy's global generator), with statistics, EMA, a
schedule that a callback steers, early stopping, metrics and validation.
"""

import hashlib
import json
import sys
import time

import keras
import numpy as np
from keras import layers

import fitroom

keras.utils.set_random_seed(11)
random = np.random.default_rng(5)
x = random.normal(size=(300, 12)).astype("float32")
y = (x[:, 0] + 0.3 * random.normal(size=300) > 0).astype("int32")


class Noisy(keras.utils.PyDataset):
    """Batches with noise from NumPy's global generator, as augmentation has it."""

    def __len__(self):
        return 15

    def __getitem__(self, index):
        time.sleep(0.004)  # long enough to be killed within
        part = slice(16 * index, 16 * index + 16)
        return x[part] + 0.01 * np.random.normal(size=x[part].shape).astype("float32"), y[part]


model = keras.Sequential(
    [
        keras.Input((12,)),
        layers.Dense(16, activation="relu", kernel_regularizer="l2"),
        layers.BatchNormalization(),
        layers.Dropout(0.3),
        layers.Dense(2),
    ]
)
model.compile(
    keras.optimizers.Adam(0.01, use_ema=True, ema_momentum=0.9, clipnorm=1.0),
    keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    metrics=["accuracy"],
)
print("begun", flush=True)
history = fitroom.fit(
    model,
    Noisy(),
    epochs=6,
    validation_data=(x[240:], y[240:]),
    verbose=0,
    callbacks=[
        keras.callbacks.ReduceLROnPlateau(monitor="val_loss", patience=1, factor=0.5),
        keras.callbacks.EarlyStopping(monitor="val_loss", patience=50, restore_best_weights=True),
    ],
    recipe=fitroom.Recipe(micro_batch=6),
    run_dir=sys.argv[1],
    checkpoint_batches=2,
)
digest = hashlib.sha256()
for variable in [*model.variables, *model.optimizer.variables]:
    digest.update(np.ascontiguousarray(keras.ops.convert_to_numpy(variable)).tobytes())
numbers = {name: [float(value) for value in values] for name, values in history.history.items()}
print("RESULT", json.dumps({"weights": digest.hexdigest(), "epochs": history.epoch, "history": numbers}), flush=True)
