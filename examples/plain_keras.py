"""Training as tutorials write it: plain Keras, without a word of fitroom.

python examples/plain_keras.py flowers              # dies where memory is short
fitroom run examples/plain_keras.py flowers         # the same script, and it does not
"""

import sys

import keras
from flower_cnn import make_model

keras.utils.set_random_seed(0)
train, validation = keras.utils.image_dataset_from_directory(
    sys.argv[1],
    image_size=(64, 64),
    crop_to_aspect_ratio=True,
    batch_size=64,
    validation_split=0.2,
    subset="both",
    seed=0,
)
model = make_model()
model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
model.fit(train, validation_data=validation, epochs=10)
