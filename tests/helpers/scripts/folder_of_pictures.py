"""A script as the tutorials have it: a folder per class, rescaling in the model, validation beside it."""

import sys

import keras
from keras import layers

folder, batch_size, epochs = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
keras.utils.set_random_seed(0)
options = {"validation_split": 0.25, "seed": 1, "image_size": (48, 48), "batch_size": batch_size}
train = keras.utils.image_dataset_from_directory(folder, subset="training", **options)
held_out = keras.utils.image_dataset_from_directory(folder, subset="validation", **options)

model = keras.Sequential(
    [
        layers.Rescaling(1.0 / 255),
        layers.RandomFlip("horizontal"),
        layers.Conv2D(32, 3, activation="relu", padding="same"),
        layers.Conv2D(32, 3, activation="relu", padding="same"),
        layers.GlobalAveragePooling2D(),
        layers.Dense(len(train.class_names), activation="softmax"),
    ]
)
model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
history = model.fit(train, validation_data=held_out, epochs=epochs, verbose=2)
print("updates", int(model.optimizer.iterations), "val_loss", history.history["val_loss"][-1])
