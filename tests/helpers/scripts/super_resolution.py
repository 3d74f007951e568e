"""Sub-pixel super-resolution: images of any size, a generator of batches, a callback that measures PSNR."""

import json
import math

import keras
import numpy as np
from keras import layers, ops

UPSCALE, SIZE, BATCH_SIZE, STEPS = 3, 24, 64, 2


class DepthToSpace(layers.Layer):
    """Makes of channels a finer grid of pixels."""

    def __init__(self, block_size, **options):
        super().__init__(**options)
        self.block_size = block_size

    def call(self, inputs):
        batch_size, height, width, depth = ops.shape(inputs)
        depth //= self.block_size**2
        x = ops.reshape(inputs, (batch_size, height, width, self.block_size, self.block_size, depth))
        x = ops.transpose(x, (0, 1, 3, 2, 4, 5))
        return ops.reshape(x, (batch_size, height * self.block_size, width * self.block_size, depth))


def get_model(upscale_factor, channels=1):
    arguments = {"activation": "relu", "kernel_initializer": "orthogonal", "padding": "same"}
    inputs = keras.Input((None, None, channels))
    x = layers.Conv2D(64, 5, **arguments)(inputs)
    x = layers.Conv2D(64, 3, **arguments)(x)
    x = layers.Conv2D(32, 3, **arguments)(x)
    x = layers.Conv2D(channels * upscale_factor**2, 3, **arguments)(x)
    return keras.Model(inputs, DepthToSpace(upscale_factor)(x))


def batches(seed):
    """Without end: blurred images and the same in full size."""
    random = np.random.default_rng(seed)
    grid = np.linspace(0, 1, SIZE * UPSCALE, dtype="float32")
    while True:
        phases = random.random((BATCH_SIZE, 2, 1, 1), dtype="float32") * 6
        large = 0.5 + 0.25 * (np.sin(9 * grid[None, :, None] + phases[:, 0]) + np.cos(9 * grid + phases[:, 1]))
        small = large.reshape(BATCH_SIZE, SIZE, UPSCALE, SIZE, UPSCALE).mean(axis=(2, 4))
        yield small[..., None], large[..., None]


class PSNR(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        self.psnr = []

    def on_test_batch_end(self, batch, logs=None):
        self.psnr.append(10 * math.log10(1 / logs["loss"]))

    def on_epoch_end(self, epoch, logs=None):
        print(f"Mean PSNR for epoch: {np.mean(self.psnr):.2f}")


keras.utils.set_random_seed(0)
model = get_model(UPSCALE)
model.compile(optimizer=keras.optimizers.Adam(learning_rate=1e-3), loss=keras.losses.MeanSquaredError())
history = model.fit(
    batches(0),
    steps_per_epoch=STEPS,
    epochs=3,
    validation_data=batches(1),
    validation_steps=1,
    callbacks=[PSNR(), keras.callbacks.EarlyStopping(monitor="loss", patience=10)],
    verbose=2,
)
small, large = next(batches(2))
error = float(np.mean((model.predict(small[:2, :20, :16], verbose=0) - large[:2, :60, :48]) ** 2))
print(json.dumps(history.history | {"predicted": error}))
