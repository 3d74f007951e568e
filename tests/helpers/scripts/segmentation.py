"""Segmentation: a small U-Net with a class for every pixel, fed by a `PyDataset`, the best of it kept."""

import json
import tempfile
from pathlib import Path

import keras
import numpy as np
from keras import layers

NUM_CLASSES = 3
SIZE = (32, 32)


class Scenes(keras.utils.PyDataset):
    """Images of a bright square on noise, and masks that say for every pixel what it belongs to."""

    def __init__(self, batch_size, num_batches, seed):
        super().__init__()
        self.batch_size, self.length, self.seed, self.epoch = batch_size, num_batches, seed, 0

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        random = np.random.default_rng([self.seed, self.epoch, index])
        x = random.random((self.batch_size, *SIZE, 3)).astype("float32") / 2
        y = np.zeros((self.batch_size, *SIZE, 1), "uint8")
        for image, mask, (top, left) in zip(x, y, random.integers(2, 20, (self.batch_size, 2)), strict=True):
            image[top : top + 10, left : left + 10] += 0.5
            mask[top : top + 10, left : left + 10] = 1
            mask[top + 3 : top + 7, left + 3 : left + 7] = 2
        return x, y

    def on_epoch_end(self):
        self.epoch += 1  # other scenes


def make_model():
    inputs = keras.Input((*SIZE, 3))
    features = layers.Conv2D(16, 3, padding="same", activation="relu")(inputs)
    skipped = []
    for filters in (16, 32):
        features = layers.Conv2D(filters, 3, padding="same", activation="relu")(features)
        skipped.append(features)
        features = layers.MaxPooling2D()(features)
    features = layers.Conv2D(32, 3, padding="same", activation="relu")(features)
    for filters in (32, 16):
        features = layers.Conv2DTranspose(filters, 2, strides=2, padding="same")(features)
        features = layers.Concatenate()([features, skipped.pop()])
        features = layers.Conv2D(filters, 3, padding="same", activation="relu")(features)
    return keras.Model(inputs, layers.Conv2D(NUM_CLASSES, 1, padding="same")(features))


keras.utils.set_random_seed(0)
model = make_model()
model.compile(
    optimizer=keras.optimizers.Adam(1e-3),
    loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    metrics=["accuracy", keras.metrics.MeanIoU(NUM_CLASSES, sparse_y_pred=False, name="iou")],
)
with tempfile.TemporaryDirectory() as folder:
    best = Path(folder) / "segmentation.keras"
    callbacks = [keras.callbacks.ModelCheckpoint(best, save_best_only=True)]
    history = model.fit(
        Scenes(64, 3, seed=0),
        epochs=3,
        validation_data=Scenes(32, 1, seed=1),
        callbacks=callbacks,
        shuffle=False,
        verbose=2,
    )
    model = keras.models.load_model(best)
predictions = model.predict(Scenes(32, 1, seed=1), verbose=0)
classes = np.argmax(predictions, axis=-1)
print(json.dumps(history.history | {"background": float((classes == 0).mean())}))
