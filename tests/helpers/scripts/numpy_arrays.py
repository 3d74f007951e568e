"""A script as people write it: NumPy arrays, a batch that is too large for the memory there is."""

import sys

import keras
import numpy as np
from keras import layers

batch_size, epochs = int(sys.argv[1]), int(sys.argv[2])
keras.utils.set_random_seed(0)
x = np.random.rand(batch_size + batch_size // 2, 48, 48, 3).astype("float32")
y = np.random.randint(0, 5, len(x))

model = keras.Sequential(
    [
        keras.Input((48, 48, 3)),
        layers.Conv2D(32, 3, activation="relu", padding="same"),
        layers.Conv2D(32, 3, activation="relu", padding="same"),
        layers.GlobalAveragePooling2D(),
        layers.Dense(5, activation="softmax"),
    ]
)
model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
history = model.fit(x, y, batch_size=batch_size, epochs=epochs, verbose=2)
print("updates", int(model.optimizer.iterations), "loss", history.history["loss"][-1])
