"""A `PyDataset` whose batches are made by several threads, with sample weights in them."""

import json

import keras
import numpy as np
from keras import layers


class Signals(keras.utils.PyDataset):
    def __init__(self, x, y, batch_size, **options):
        super().__init__(**options)
        self.x, self.y, self.batch_size = x, y, batch_size

    def __len__(self):
        return -(-len(self.x) // self.batch_size)

    def __getitem__(self, index):
        chosen = slice(index * self.batch_size, (index + 1) * self.batch_size)
        return self.x[chosen], self.y[chosen], 1.0 + (self.y[chosen] > 1).astype("float32")


keras.utils.set_random_seed(0)
y = np.random.randint(0, 3, 300)
x = (np.random.normal(0, 1, (300, 200, 2)) + y[:, None, None]).astype("float32")
model = keras.Sequential(
    [
        keras.Input((200, 2)),
        layers.Dense(64, activation="relu"),
        layers.Dense(64, activation="relu"),
        layers.GlobalAveragePooling1D(),
        layers.Dense(3),
    ]
)
model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), weighted_metrics=["accuracy"])
data = Signals(x, y, 128, workers=2, use_multiprocessing=False, max_queue_size=4)
history = model.fit(data, epochs=3, shuffle=False, verbose=2)
evaluated = model.evaluate(x, y, batch_size=128, verbose=0, return_dict=True)
print(json.dumps(history.history | {"evaluated": evaluated["loss"]}))
