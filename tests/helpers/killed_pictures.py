"""A training on the folder that PICTURES names, in the run folder that is given; at the end it prints what came of it.

python killed_pictures.py RUN_DIR
"""

import hashlib
import json
import os
import sys
import time

import keras
import numpy as np

import fitroom


class Slow(keras.callbacks.Callback):
    """Leaves time to be killed in."""

    def on_train_batch_end(self, batch, logs=None):
        time.sleep(0.02)


pictures = fitroom.data.images(os.environ["PICTURES"], image_size=48, batch_size=8, augment=True, cache="disk")
keras.utils.set_random_seed(11)
layers = keras.layers
model = keras.Sequential(
    [
        keras.Input((48, 48, 3)),
        layers.Rescaling(1 / 127.5, -1),
        layers.Conv2D(8, 3, 2, activation="relu"),
        layers.BatchNormalization(),
        layers.GlobalAveragePooling2D(),
        layers.Dropout(0.2),
        layers.Dense(2),
    ]
)
model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
print("begun", flush=True)
history = fitroom.fit(
    model,
    pictures.train,
    validation_data=pictures.validation,
    epochs=4,
    verbose=0,
    callbacks=[Slow()],
    run_dir=sys.argv[1],
    checkpoint_batches=2,
)
digest = hashlib.sha256()
for variable in [*model.variables, *model.optimizer.variables]:
    digest.update(np.ascontiguousarray(keras.ops.convert_to_numpy(variable)).tobytes())
numbers = {name: [float(value) for value in values] for name, values in history.history.items()}
print("RESULT", json.dumps({"weights": digest.hexdigest(), "epochs": history.epoch, "history": numbers}), flush=True)
