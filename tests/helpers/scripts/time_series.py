"""A forecast by an LSTM from windows of a series, with the callbacks of the tutorials, then evaluate and predict."""

import json
import tempfile
from pathlib import Path

import keras
import numpy as np
from keras import layers

PAST, STEP, BATCH_SIZE = 120, 2, 256

keras.utils.set_random_seed(0)
hours = np.arange(1200)
series = np.stack([np.sin(hours / 24), np.cos(hours / 50), np.random.normal(0, 0.1, len(hours))], axis=1)
series = ((series - series[:800].mean(axis=0)) / series[:800].std(axis=0)).astype("float32")


def windows(part, **options):
    return keras.utils.timeseries_dataset_from_array(
        part[:-PAST],
        part[PAST:, :1],
        sequence_length=PAST // STEP,
        sampling_rate=STEP,
        batch_size=BATCH_SIZE,
        **options,
    )


train, validation = windows(series[:800]), windows(series[800:])
inputs = keras.Input((PAST // STEP, 3))
outputs = layers.Dense(1)(layers.LSTM(64)(inputs))
model = keras.Model(inputs, outputs)
model.compile(optimizer=keras.optimizers.Adam(learning_rate=1e-2), loss="mse")
with tempfile.TemporaryDirectory() as folder:
    best = Path(folder) / "best.weights.h5"
    history = model.fit(
        train,
        epochs=6,
        validation_data=validation,
        callbacks=[
            keras.callbacks.EarlyStopping(monitor="val_loss", patience=2, restore_best_weights=True),
            keras.callbacks.ReduceLROnPlateau(monitor="val_loss", factor=0.5, patience=1, min_delta=0.05),
            keras.callbacks.ModelCheckpoint(best, monitor="val_loss", save_weights_only=True, save_best_only=True),
        ],
        verbose=2,
    )
    model.load_weights(best)
evaluated = model.evaluate(validation, verbose=0)
predicted = model.predict(validation, verbose=0)
print(json.dumps(history.history | {"evaluated": evaluated, "predicted": float(predicted.mean())}, default=float))
