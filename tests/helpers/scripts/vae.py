"""A variational autoencoder: encoder, sampling layer, decoder, a `train_step` of its own, and no targets."""

import json

import keras
import numpy as np
from keras import layers, ops

backend = keras.backend.backend()


class Sampling(layers.Layer):
    """Draws a point of the latent space by mean and logarithm of the variance."""

    def __init__(self, **options):
        super().__init__(**options)
        self.seed_generator = keras.random.SeedGenerator(1337)

    def call(self, inputs):
        z_mean, z_log_var = inputs
        epsilon = keras.random.normal(ops.shape(z_mean), seed=self.seed_generator)
        return z_mean + ops.exp(0.5 * z_log_var) * epsilon


class VAE(keras.Model):
    def __init__(self, encoder, decoder, **options):
        super().__init__(**options)
        self.encoder = encoder
        self.decoder = decoder
        self.total_loss_tracker = keras.metrics.Mean(name="loss")
        self.reconstruction_loss_tracker = keras.metrics.Mean(name="reconstruction_loss")
        self.kl_loss_tracker = keras.metrics.Mean(name="kl_loss")
        self.built = True

    @property
    def metrics(self):
        return [self.total_loss_tracker, self.reconstruction_loss_tracker, self.kl_loss_tracker]

    def call(self, images):
        z_mean, z_log_var, z = self.encoder(images)
        return z_mean, z_log_var, self.decoder(z)

    def losses_of(self, images, outputs):
        z_mean, z_log_var, reconstruction = outputs
        differences = keras.losses.binary_crossentropy(images, reconstruction)
        reconstruction_loss = ops.mean(ops.sum(differences, axis=(1, 2)))
        kl_loss = -0.5 * (1 + z_log_var - ops.square(z_mean) - ops.exp(z_log_var))
        kl_loss = ops.mean(ops.sum(kl_loss, axis=1))
        return reconstruction_loss + kl_loss, reconstruction_loss, kl_loss

    if backend == "tensorflow":

        def train_step(self, data):
            import tensorflow as tf

            with tf.GradientTape() as tape:
                losses = self.losses_of(data, self(data))
            gradients = tape.gradient(losses[0], self.trainable_weights)
            self.optimizer.apply_gradients(zip(gradients, self.trainable_weights, strict=True))
            for metric, loss in zip(self.metrics, losses, strict=True):
                metric.update_state(loss)
            return {metric.name: metric.result() for metric in self.metrics}

    elif backend == "jax":

        def loss_and_updates(self, trainable, non_trainable, data):
            outputs, non_trainable = self.stateless_call(trainable, non_trainable, data)
            losses = self.losses_of(data, outputs)
            return losses[0], (losses, non_trainable)

        def train_step(self, state, data):
            import jax

            trainable, non_trainable, optimizer_variables, metrics_variables = state
            value_and_gradients = jax.value_and_grad(self.loss_and_updates, has_aux=True)
            (_, (losses, non_trainable)), gradients = value_and_gradients(trainable, non_trainable, data)
            trainable, optimizer_variables = self.optimizer.stateless_apply(optimizer_variables, gradients, trainable)
            logs, updated = {}, []
            for metric, loss in zip(self.metrics, losses, strict=True):
                these = metrics_variables[len(updated) : len(updated) + len(metric.variables)]
                these = metric.stateless_update_state(these, loss)
                logs[metric.name] = metric.stateless_result(these)
                updated += these
            return logs, (trainable, non_trainable, optimizer_variables, updated)

    else:

        def train_step(self, data):
            import torch

            self.zero_grad()
            losses = self.losses_of(data, self(data))
            losses[0].backward()
            gradients = [weight.value.grad for weight in self.trainable_weights]
            with torch.no_grad():
                self.optimizer.apply(gradients, self.trainable_weights)
            for metric, loss in zip(self.metrics, losses, strict=True):
                metric.update_state(loss)
            return {metric.name: metric.result() for metric in self.metrics}


keras.utils.set_random_seed(0)
LATENT = 2
images = np.random.random((128, 28, 28, 1)).astype("float32")

inputs = keras.Input((28, 28, 1))
features = layers.Conv2D(32, 3, activation="relu", strides=2, padding="same")(inputs)
features = layers.Conv2D(32, 3, activation="relu", strides=2, padding="same")(features)
features = layers.Dense(16, activation="relu")(layers.Flatten()(features))
z_mean = layers.Dense(LATENT, name="z_mean")(features)
z_log_var = layers.Dense(LATENT, name="z_log_var")(features)
encoder = keras.Model(inputs, [z_mean, z_log_var, Sampling()([z_mean, z_log_var])], name="encoder")

latent = keras.Input((LATENT,))
features = layers.Reshape((7, 7, 32))(layers.Dense(7 * 7 * 32, activation="relu")(latent))
features = layers.Conv2DTranspose(32, 3, activation="relu", strides=2, padding="same")(features)
features = layers.Conv2DTranspose(32, 3, activation="relu", strides=2, padding="same")(features)
decoder = keras.Model(latent, layers.Conv2DTranspose(1, 3, activation="sigmoid", padding="same")(features))

vae = VAE(encoder, decoder)
vae.compile(optimizer=keras.optimizers.Adam())
history = vae.fit(images, epochs=3, batch_size=64, shuffle=False, verbose=2)
print(json.dumps(history.history))
