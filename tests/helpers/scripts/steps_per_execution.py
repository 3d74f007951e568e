"""Several steps in one call of the compiled function, and a callback that hears only of the last of them."""

import json

import keras
import numpy as np
from keras import layers


class Heard(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.batches = []

    def on_train_batch_end(self, batch, logs=None):
        self.batches.append(batch)


keras.utils.set_random_seed(0)
x = np.random.random((640, 100, 20)).astype("float32")
y = x[:, :, :2].sum(axis=(1, 2)) / 100
model = keras.Sequential(
    [
        keras.Input((100, 20)),
        layers.Dense(128, activation="relu"),
        layers.GlobalAveragePooling1D(),
        layers.Dense(1),
    ]
)
model.compile("sgd", "mse", metrics=["mae"], steps_per_execution=4)
heard = Heard()
history = model.fit(x, y, batch_size=64, epochs=3, shuffle=False, callbacks=[heard], verbose=2)
print(json.dumps(history.history | {"heard": heard.batches}))
