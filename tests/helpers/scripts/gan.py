"""A GAN: two networks, two optimizers, a `train_step` of its own that takes images and no labels."""

import json

import keras
import numpy as np
from keras import layers, ops

backend = keras.backend.backend()
LATENT = 16


class GAN(keras.Model):
    def __init__(self, discriminator, generator):
        super().__init__()
        self.discriminator = discriminator
        self.generator = generator
        self.seed_generator = keras.random.SeedGenerator(1337)
        self.d_loss_tracker = keras.metrics.Mean(name="d_loss")
        self.g_loss_tracker = keras.metrics.Mean(name="g_loss")
        self.built = True

    @property
    def metrics(self):
        return [self.d_loss_tracker, self.g_loss_tracker]

    def compile(self, d_optimizer, g_optimizer, loss_fn):
        super().compile()
        self.d_optimizer = d_optimizer
        self.g_optimizer = g_optimizer
        self.loss_fn = loss_fn

    def train_step(self, real_images):
        batch_size = ops.shape(real_images)[0]
        noise = keras.random.normal((batch_size, LATENT), seed=self.seed_generator)
        generated = self.generator(noise)
        combined = ops.concatenate([generated, real_images], axis=0)
        labels = ops.concatenate([ops.ones((batch_size, 1)), ops.zeros((batch_size, 1))], axis=0)
        labels += 0.05 * keras.random.uniform(ops.shape(labels), seed=self.seed_generator)

        def d_loss():
            return self.loss_fn(labels, self.discriminator(combined))

        noise = keras.random.normal((batch_size, LATENT), seed=self.seed_generator)
        misleading = ops.zeros((batch_size, 1))

        def g_loss():
            return self.loss_fn(misleading, self.discriminator(self.generator(noise)))

        self.d_loss_tracker.update_state(self.update(self.discriminator, self.d_optimizer, d_loss))
        self.g_loss_tracker.update_state(self.update(self.generator, self.g_optimizer, g_loss))
        return {"d_loss": self.d_loss_tracker.result(), "g_loss": self.g_loss_tracker.result()}

    if backend == "tensorflow":

        def update(self, network, optimizer, loss_of):
            import tensorflow as tf

            with tf.GradientTape() as tape:
                loss = loss_of()
            gradients = tape.gradient(loss, network.trainable_weights)
            optimizer.apply_gradients(zip(gradients, network.trainable_weights, strict=True))
            return loss

    else:

        def update(self, network, optimizer, loss_of):
            import torch

            self.zero_grad()
            loss = loss_of()
            loss.backward()
            gradients = [weight.value.grad for weight in network.trainable_weights]
            with torch.no_grad():
                optimizer.apply(gradients, network.trainable_weights)
            return loss


keras.utils.set_random_seed(0)
images = np.random.random((128, 16, 16, 1)).astype("float32")

discriminator = keras.Sequential(
    [
        keras.Input((16, 16, 1)),
        layers.Conv2D(32, 3, padding="same"),
        layers.LeakyReLU(negative_slope=0.2),
        layers.Conv2D(32, 3, strides=2, padding="same"),
        layers.LeakyReLU(negative_slope=0.2),
        layers.GlobalMaxPooling2D(),
        layers.Dense(1),
    ],
    name="discriminator",
)
generator = keras.Sequential(
    [
        keras.Input((LATENT,)),
        layers.Dense(8 * 8 * LATENT),
        layers.LeakyReLU(negative_slope=0.2),
        layers.Reshape((8, 8, LATENT)),
        layers.Conv2DTranspose(32, 4, strides=2, padding="same"),
        layers.LeakyReLU(negative_slope=0.2),
        layers.Conv2D(1, 3, padding="same", activation="sigmoid"),
    ],
    name="generator",
)
gan = GAN(discriminator, generator)
gan.compile(
    d_optimizer=keras.optimizers.Adam(learning_rate=3e-4),
    g_optimizer=keras.optimizers.Adam(learning_rate=3e-4),
    loss_fn=keras.losses.BinaryCrossentropy(from_logits=True),
)
history = gan.fit(images, batch_size=64, epochs=3, shuffle=False, verbose=2)
made = gan.generator.predict(np.zeros((4, LATENT), "float32"), verbose=0)
print(json.dumps(history.history | {"made": float(made.mean())}))
