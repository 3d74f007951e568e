"""Images from a folder per class, with augmentation layers in the model, as the tutorials on image classification."""

import json
import tempfile
from pathlib import Path

import keras
import numpy as np
from keras import layers
from PIL import Image

IMAGE_SIZE = (48, 48)
BATCH_SIZE = 64


def draw_images(folder):
    random = np.random.default_rng(0)
    for kind, channel in (("cats", 0), ("dogs", 2)):
        (folder / kind).mkdir()
        for number in range(80):
            image = random.integers(0, 200, (56, 60, 3), "uint8")
            image[..., channel] += 55
            Image.fromarray(image).save(folder / kind / f"{number:03}.png")


def make_model(input_shape, num_classes):
    inputs = keras.Input(shape=input_shape)
    x = layers.RandomFlip("horizontal", seed=1)(inputs)
    x = layers.RandomRotation(0.1, seed=2)(x)
    x = layers.Rescaling(1.0 / 255)(x)
    x = layers.Conv2D(16, 3, padding="same", use_bias=False)(x)
    x = layers.BatchNormalization()(x)
    x = layers.Activation("relu")(x)
    previous = x
    for size in (16, 24):
        x = layers.SeparableConv2D(size, 3, padding="same", use_bias=False)(x)
        x = layers.BatchNormalization()(x)
        x = layers.Activation("relu")(x)
        x = layers.MaxPooling2D(3, strides=2, padding="same")(x)
        x = layers.add([x, layers.Conv2D(size, 1, strides=2, padding="same")(previous)])
        previous = x
    x = layers.GlobalAveragePooling2D()(x)
    x = layers.Dropout(0.25)(x)
    return keras.Model(inputs, layers.Dense(num_classes, activation="softmax")(x))


with tempfile.TemporaryDirectory() as name:
    folder = Path(name)
    draw_images(folder)
    keras.utils.set_random_seed(0)
    train_ds, val_ds = keras.utils.image_dataset_from_directory(
        folder, validation_split=0.2, subset="both", seed=1337, image_size=IMAGE_SIZE, batch_size=BATCH_SIZE
    )
    model = make_model((*IMAGE_SIZE, 3), num_classes=len(train_ds.class_names))
    model.compile(
        optimizer=keras.optimizers.Adam(3e-4),
        loss=keras.losses.SparseCategoricalCrossentropy(),
        metrics=[keras.metrics.SparseCategoricalAccuracy(name="acc")],
    )
    history = model.fit(train_ds, epochs=2, validation_data=val_ds, verbose=2)
    loss, accuracy = model.evaluate(val_ds, verbose=0)
print(json.dumps(history.history | {"evaluated": loss}))
