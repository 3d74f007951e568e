"""A callback that reads and sets weights of `self.model` between batches, and a learning rate by the epoch."""

import json

import keras
import numpy as np
from keras import layers


class Watch(keras.callbacks.Callback):
    """Keeps the norm of the kernels after every batch, and makes one that grew too long shorter."""

    def __init__(self, longest):
        super().__init__()
        self.longest, self.norms = longest, []

    def on_train_batch_end(self, batch, logs=None):
        kernel, bias = self.model.get_layer("hidden").get_weights()
        norm = float(np.linalg.norm(kernel))
        if norm > self.longest:
            self.model.get_layer("hidden").set_weights([kernel * self.longest / norm, bias])
        self.norms.append(norm)

    def on_epoch_end(self, epoch, logs=None):
        logs["updates"] = int(self.model.optimizer.iterations)


keras.utils.set_random_seed(0)
x = np.random.random((192, 200, 16)).astype("float32")
y = x.mean(axis=1).argmax(axis=1)
model = keras.Sequential(
    [
        keras.Input((200, 16)),
        layers.Dense(128, activation="relu", name="hidden"),
        layers.Dense(128, activation="relu"),
        layers.GlobalAveragePooling1D(),
        layers.Dense(16, activation="softmax"),
    ]
)
model.compile(keras.optimizers.Adam(1e-2), "sparse_categorical_crossentropy")
watch = Watch(longest=8.0)
schedule = keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate * 0.5 if epoch else rate)
history = model.fit(x, y, batch_size=96, epochs=3, shuffle=False, callbacks=[watch, schedule], verbose=2)
print(json.dumps(history.history | {"norms": watch.norms}, default=float))
