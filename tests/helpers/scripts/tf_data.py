"""A script as people write it: a `tf.data` pipeline with a batch that is too large for the memory there is."""

import sys

import keras
import numpy as np
import tensorflow as tf
from keras import layers

batch_size, epochs = int(sys.argv[1]), int(sys.argv[2])
keras.utils.set_random_seed(0)
x = np.random.rand(batch_size + batch_size // 2, 48, 48, 3).astype("float32")
y = np.random.randint(0, 5, len(x))
dataset = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(1000, seed=1).batch(batch_size).prefetch(1)

model = keras.Sequential(
    [
        layers.Conv2D(32, 3, activation="relu", padding="same"),
        layers.Conv2D(32, 3, activation="relu", padding="same"),
        layers.GlobalAveragePooling2D(),
        layers.Dense(5, activation="softmax"),
    ]
)
model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
history = model.fit(dataset, epochs=epochs, verbose=2)
print("updates", int(model.optimizer.iterations), "loss", history.history["loss"][-1])
