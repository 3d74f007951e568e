"""Contrastive learning: two views of each image, and a layer whose `add_loss` compares every image with all others."""

import json

import keras
import numpy as np
from keras import layers, ops


class ContrastiveLoss(layers.Layer):
    """Says which two views are of one image, among all of the batch."""

    def __init__(self, temperature=0.1):
        super().__init__()
        self.temperature = temperature

    def call(self, inputs):
        first, second = (ops.normalize(view, axis=-1) for view in inputs)
        similarities = ops.matmul(first, ops.transpose(second)) / self.temperature
        labels = ops.arange(ops.shape(first)[0])
        there = keras.losses.sparse_categorical_crossentropy(labels, similarities, from_logits=True)
        back = keras.losses.sparse_categorical_crossentropy(labels, ops.transpose(similarities), from_logits=True)
        self.add_loss(ops.mean(there + back) / 2)
        return ops.matmul(first, ops.transpose(second))


keras.utils.set_random_seed(0)
originals = np.random.random((128, 24, 24, 1)).astype("float32")
views = [originals + np.random.normal(0, 0.05, originals.shape).astype("float32") for _ in range(2)]

encoder = keras.Sequential(
    [
        keras.Input((24, 24, 1)),
        layers.Conv2D(32, 3, activation="relu", padding="same"),
        layers.Conv2D(32, 3, activation="relu", padding="same"),
        layers.Flatten(),
        layers.Dense(16),
    ]
)
inputs = [keras.Input((24, 24, 1)) for _ in views]
model = keras.Model(inputs, ContrastiveLoss()([encoder(view) for view in inputs]))
model.compile(optimizer=keras.optimizers.Adam(2e-4))
history = model.fit(views, batch_size=64, epochs=3, shuffle=False, verbose=2)
print(json.dumps(history.history))
