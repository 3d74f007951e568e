"""A `train_step` of one's own with one optimizer, after the guides on customizing `fit`: one way for each backend."""

import json

import keras
import numpy as np
from keras import layers

backend = keras.backend.backend()

if backend == "tensorflow":
    import tensorflow as tf

    class OwnModel(keras.Model):
        def train_step(self, data):
            x, y = data
            with tf.GradientTape() as tape:
                y_pred = self(x, training=True)
                loss = self.compute_loss(y=y, y_pred=y_pred)
            gradients = tape.gradient(loss, self.trainable_variables)
            self.optimizer.apply(gradients, self.trainable_variables)
            for metric in self.metrics:
                if metric.name == "loss":
                    metric.update_state(loss)
                else:
                    metric.update_state(y, y_pred)
            return {metric.name: metric.result() for metric in self.metrics}

elif backend == "jax":
    import jax

    class OwnModel(keras.Model):
        def compute_loss_and_updates(self, trainable, non_trainable, x, y, training=False):
            y_pred, non_trainable = self.stateless_call(trainable, non_trainable, x, training=training)
            return self.compute_loss(x, y, y_pred), (y_pred, non_trainable)

        def train_step(self, state, data):
            trainable, non_trainable, optimizer_variables, metrics_variables = state
            x, y = data
            value_and_gradients = jax.value_and_grad(self.compute_loss_and_updates, has_aux=True)
            (loss, (y_pred, non_trainable)), gradients = value_and_gradients(
                trainable, non_trainable, x, y, training=True
            )
            trainable, optimizer_variables = self.optimizer.stateless_apply(optimizer_variables, gradients, trainable)
            logs, new_metrics_variables = {}, []
            for metric in self.metrics:
                number = len(metric.variables)
                these = metrics_variables[len(new_metrics_variables) : len(new_metrics_variables) + number]
                if metric.name == "loss":
                    these = metric.stateless_update_state(these, loss)
                else:
                    these = metric.stateless_update_state(these, y, y_pred)
                logs[metric.name] = metric.stateless_result(these)
                new_metrics_variables += these
            return logs, (trainable, non_trainable, optimizer_variables, new_metrics_variables)

else:
    import torch

    class OwnModel(keras.Model):
        def train_step(self, data):
            x, y = data
            self.zero_grad()
            y_pred = self(x, training=True)
            loss = self.compute_loss(y=y, y_pred=y_pred)
            loss.backward()
            trainable = list(self.trainable_weights)
            gradients = [weight.value.grad for weight in trainable]
            with torch.no_grad():
                self.optimizer.apply(gradients, trainable)
            for metric in self.metrics:
                if metric.name == "loss":
                    metric.update_state(loss)
                else:
                    metric.update_state(y, y_pred)
            return {metric.name: metric.result() for metric in self.metrics}


keras.utils.set_random_seed(0)
x = np.random.random((128, 32, 32, 3)).astype("float32")
y = x.mean(axis=(1, 2, 3), keepdims=False)[:, None] * 4

inputs = keras.Input((32, 32, 3))
features = layers.Conv2D(16, 3, activation="relu", padding="same")(inputs)
features = layers.Conv2D(16, 3, activation="relu", padding="same")(features)
outputs = layers.Dense(1)(layers.GlobalAveragePooling2D()(features))
model = OwnModel(inputs, outputs)
model.compile(optimizer=keras.optimizers.Adam(1e-2), loss="mse", metrics=["mae"])
history = model.fit(x, y, batch_size=64, epochs=3, shuffle=False, verbose=2)
print(json.dumps(history.history))
