"""Transfer learning with a subclassed model: train the head, unfreeze and fine-tune; then a loop written by hand."""

import json

import keras
import numpy as np
from keras import layers


class Backbone(keras.Model):
    def __init__(self):
        super().__init__(name="backbone")
        self.convolutions = [layers.Conv2D(32, 3, padding="same", use_bias=False) for _ in range(3)]
        self.norms = [layers.BatchNormalization() for _ in range(3)]

    def call(self, x, training=None):
        for convolution, norm in zip(self.convolutions, self.norms, strict=True):
            x = keras.activations.relu(norm(convolution(x), training=training))
        return x


class Classifier(keras.Model):
    def __init__(self, backbone, num_classes):
        super().__init__()
        self.backbone = backbone
        self.pool = layers.GlobalAveragePooling2D()
        self.head = layers.Dense(num_classes)

    def call(self, x, training=None):
        return self.head(self.pool(self.backbone(x, training=training)))


keras.utils.set_random_seed(0)
x = np.random.random((192, 24, 24, 3)).astype("float32")
y = (x[:, 4:20, 4:20, 0].mean(axis=(1, 2)) > 0.5).astype("int32")

backbone = Backbone()
model = Classifier(backbone, 2)
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
backbone.trainable = False
model.compile(keras.optimizers.Adam(1e-2), loss, metrics=["accuracy"])
head = model.fit(x, y, batch_size=96, epochs=2, validation_split=0.25, shuffle=False, verbose=2)

backbone.trainable = True
model.compile(keras.optimizers.Adam(1e-4), loss, metrics=["accuracy"])
tuned = model.fit(x, y, batch_size=96, epochs=2, validation_split=0.25, shuffle=False, verbose=2)

by_hand = []
for _ in range(2):
    model.reset_metrics()
    for start in range(0, len(x), 96):
        logs = model.train_on_batch(x[start : start + 96], y[start : start + 96], return_dict=True)
    by_hand.append(float(logs["loss"]))
tested, accuracy = model.test_on_batch(x, y)
guessed = model.predict_on_batch(x[:16])
print(
    json.dumps(
        {
            "head": head.history["loss"],
            "val_head": head.history["val_loss"],
            "tuned": tuned.history["loss"],
            "val_tuned": tuned.history["val_loss"],
            "by_hand": by_hand,
            "tested": float(tested),
            "guessed": float(np.mean(np.asarray(guessed))),
        }
    )
)
