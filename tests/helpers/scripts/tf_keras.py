"""As most scripts on the web begin: TensorFlow first, Keras by way of it, `tf.data` with shuffling by a seed."""

import json

import tensorflow as tf
from tensorflow import keras
from tensorflow.keras import layers

tf.keras.utils.set_random_seed(0)
images = tf.random.stateless_uniform((384, 28, 28), seed=(1, 2))
labels = tf.cast(tf.reduce_mean(images, axis=(1, 2)) * 1000, tf.int32) % 10
train_ds = tf.data.Dataset.from_tensor_slices((images[..., tf.newaxis], labels)).shuffle(1000, seed=1).batch(128)
test_ds = train_ds.take(1).cache()

model = tf.keras.models.Sequential(
    [
        layers.Conv2D(32, 3, activation="relu", input_shape=(28, 28, 1)),
        layers.Conv2D(32, 3, activation="relu"),
        layers.Flatten(),
        layers.Dense(32, activation="relu"),
        tf.keras.layers.Dense(10),
    ]
)
model.compile(
    optimizer=tf.keras.optimizers.Adam(),
    loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    metrics=["accuracy"],
)
history = model.fit(train_ds, epochs=2, verbose=2)
loss, accuracy = model.evaluate(test_ds, verbose=2)
print(json.dumps(history.history | {"evaluated": loss}))
