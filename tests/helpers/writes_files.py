"""A script as people write them: trains, with callbacks that write files, and saves its model into a folder."""

import sys
from pathlib import Path

import keras
import numpy as np

folder = Path(sys.argv[1])
folder.mkdir(exist_ok=True)
keras.utils.set_random_seed(0)
random = np.random.default_rng(0)
x, y = random.normal(size=(50, 8)).astype("float32"), random.integers(0, 3, 50)
model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(16, activation="relu"), keras.layers.Dense(3)])
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile("adam", loss, metrics=["accuracy"])
callbacks = [
    keras.callbacks.CSVLogger(folder / "log.csv"),
    keras.callbacks.ModelCheckpoint(folder / "best.keras", monitor="val_loss", save_best_only=True),
    keras.callbacks.ModelCheckpoint(folder / "last.weights.h5", save_weights_only=True),
]
model.fit(x, y, batch_size=7, epochs=2, verbose=0, validation_split=0.2, callbacks=callbacks)
print("evaluated", *model.evaluate(x, y, verbose=0))
model.save(folder / "model.keras")
