"""What a training step on TensorFlow consists of, as functions of tensors that can be traced.

Gradients and update are functions of their own: what fails in the first has not touched the weights, and the old
weights, which are held during the second, take their memory when the activations are gone.

Gradients go from one to the other in the order in which the backward pass comes to them, the last layer's first: XLA
plans a program from its outputs, and in the other order it holds activations longer (Xception: 9 % more memory).
"""

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from fitroom.backends.tensorflow.train.statistics import StatisticsChange
from fitroom.keras_model.objective import Objective


class StepFunctions:
    """The functions for one compiled model."""

    def __init__(self, model: Any, objective: Objective) -> None:
        self.model, self.objective = model, objective
        self._is_unused: list[bool] = []

    def gradients(self, data: Any) -> tuple[list[Any], dict[str, Any]]:
        """The first half of Keras's `train_step`: gradients of a whole batch, and the logs."""
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
        model = self.model
        with tf.GradientTape() as tape:
            y_pred = self._call(x, training=True)
            loss = model._compute_loss(x=x, y=y, y_pred=y_pred, sample_weight=sample_weight, training=True)
            model._loss_tracker.update_state(loss, sample_weight=tf.shape(tf.nest.flatten(x)[0])[0])
            loss = model.optimizer.scale_loss(loss)
        gradients = tape.gradient(loss, self._weights)
        return gradients, model.compute_metrics(x, y, y_pred, sample_weight=sample_weight)

    def update(self, gradients: Sequence[Any]) -> None:
        """The second half of Keras's `train_step`."""
        if self.model.trainable_weights:
            self.model.optimizer.apply_gradients(zip(gradients[::-1], self.model.trainable_weights, strict=True))

    def nothing_yet(self, zero: Any) -> dict[str, Any]:
        """The sums over no micro-batch. Of zeros that are not given TensorFlow makes constants, which stay for good."""
        return {
            "gradients": [tf.fill(each.shape, tf.cast(zero, each.dtype)) for each in self._weights],
            "statistics": StatisticsChange(self.model).zeros(),
            "losses": tf.zeros((1 + self.objective.num_losses,)),
        }

    def add_micro_batch(self, data: Any, shares: Any, sample_share: Any, sums: dict[str, Any]) -> dict[str, Any]:
        """The sums with one micro-batch added. Its change of the statistics is in the sums, and undone in the model."""
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
        model, statistics = self.model, StatisticsChange(self.model)
        starts = statistics.starts()
        with tf.GradientTape() as tape:
            y_pred = self._call(x, training=True)
            loss, values = self.objective.loss(y, y_pred, sample_weight, model.losses, shares, sample_share)
            scaled = model.optimizer.scale_loss(loss)
        gradients = tape.gradient(scaled, self._weights)
        self._is_unused = [gradient is None for gradient in gradients]
        model.compute_metrics(x, y, y_pred, sample_weight=sample_weight)
        return {
            "gradients": list(map(_added, sums["gradients"], gradients, self._weights)),
            "statistics": statistics.undo(starts, sums["statistics"], sample_share),
            "losses": sums["losses"] + tf.stack([loss, *values]),
        }

    def finish(self, sums: dict[str, Any], num_samples: Any) -> dict[str, Any]:
        """The update of a batch in micro-batches, and the logs."""
        unused = self._is_unused
        self.update([None if skip else each for each, skip in zip(sums["gradients"], unused, strict=True)])
        StatisticsChange(self.model).apply(sums["statistics"])
        return self.report(sums["losses"], num_samples)

    def test_micro_batch(self, data: Any, shares: Any, sample_share: Any, losses: Any) -> Any:
        """The losses with one micro-batch of `evaluate` added."""
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
        y_pred = self._call(x, training=False)
        loss, values = self.objective.loss(y, y_pred, sample_weight, self.model.losses, shares, sample_share)
        self.model.compute_metrics(x, y, y_pred, sample_weight=sample_weight)
        return losses + tf.stack([loss, *values])

    def report(self, losses: Any, num_samples: Any) -> dict[str, Any]:
        """The logs of a whole batch, given the sums of its losses."""
        self.objective.track(losses[0], tf.unstack(losses[1:]), num_samples)
        return dict(self.model.get_metrics_result())

    def divisors(self, data: Any) -> Any:
        """What the losses divide a micro-batch by."""
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
        return self.objective.divisors(y, self._call(x, training=False), sample_weight)

    @property
    def _weights(self) -> list[Any]:
        """What is trained, in the order of the gradients."""
        weights: list[Any] = self.model.trainable_weights[::-1]
        return weights

    def _call(self, x: Any, *, training: bool) -> Any:
        return self.model(x, training=training) if self.model._call_has_training_arg else self.model(x)


def _added(total: Any, gradient: Any, weight: Any) -> Any:
    """Where a weight is not used, its zeros stay; slices of an embedding become an array."""
    if gradient is None:
        return total
    gradient = tf.convert_to_tensor(gradient)
    # What comes in place of a gradient (scales of 8-bit numbers) is no sum.
    return gradient if getattr(weight, "overwrite_with_gradient", False) else total + gradient
