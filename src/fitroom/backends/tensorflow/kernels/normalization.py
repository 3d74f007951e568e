"""BatchNormalization by TensorFlow's fused operation.

Keras composes it of a dozen operations, each a pass over the tensor, and in half precision of float32 copies that are
kept for the backward pass. The fused operation keeps its input alone, and sums in float32 all the same.
"""

from typing import Any

import keras
import tensorflow as tf

from fitroom.backends.fused_layers import FusedCall
from fitroom.backends.tensorflow.kernels.recomputable import Again, mark

_FLOATS = (tf.float32, tf.bfloat16, tf.float16)
_RANKS = (2, 3, 4, 5)


class FusedBatchNormalization(FusedCall):
    """`call` of a BatchNormalization layer that trains. In inference Keras's own keeps not even its input."""

    operation = "tf.raw_ops.FusedBatchNormV3"

    @staticmethod
    def why_not(layer: Any) -> str | None:
        """Why a layer is left to Keras, or None where it is served."""
        if layer.renorm:
            return "renorm"
        if layer.synchronized:
            return "synchronized"
        last = layer.input_spec.ndim - 1 if layer.built else -1
        return None if layer.axis in (-1, last) else f"axis {layer.axis}"

    def __call__(self, inputs: Any, training: Any = None, mask: Any = None) -> Any:
        """Compute the outputs."""
        layer, rank = self._layer, len(inputs.shape)
        is_served = mask is None and rank in _RANKS and inputs.dtype in _FLOATS and inputs.dtype == layer.compute_dtype
        if not (training and layer.trainable and is_served):
            return self._keras_call(inputs, training=training, mask=mask)
        x = inputs if rank > 3 else _as_image(inputs)
        size = layer.moving_mean.shape[0]
        scale = tf.ones((size,)) if layer.gamma is None else _float32(layer.gamma)
        offset = tf.zeros((size,)) if layer.beta is None else _float32(layer.beta)
        empty = tf.zeros((0,))

        def fused(x: Any, mean: Any, variance: Any, *, is_training: bool) -> Any:
            return tf.raw_ops.FusedBatchNormV3(
                x=x,
                scale=scale,
                offset=offset,
                mean=mean,
                variance=variance,
                epsilon=layer.epsilon,
                data_format="NHWC" if len(x.shape) == 4 else "NDHWC",
                is_training=is_training,
            )

        found = fused(x, empty, empty, is_training=True)
        mean, variance = found.batch_mean, _biased(found.batch_variance, x, size)
        _move(layer.moving_mean, mean, layer.momentum)
        _move(layer.moving_variance, variance, layer.momentum)

        def normalise(x: Any) -> Any:
            return _shaped_as(inputs, fused(x, mean, variance, is_training=False).y)

        outputs = _shaped_as(inputs, found.y)
        return mark(outputs, Again(normalise, [x])) if rank > 2 else outputs


def _float32(variable: Any) -> Any:
    return tf.cast(tf.convert_to_tensor(variable), tf.float32)


def _as_image(inputs: Any) -> Any:
    """Rows or sequences as images of one pixel or one row."""
    shape = tf.shape(inputs)
    return tf.reshape(inputs, tf.stack([shape[0], 1, -1, inputs.shape[-1]]))


def _shaped_as(inputs: Any, tensor: Any) -> Any:
    if len(inputs.shape) > 3:
        return tensor
    return tf.ensure_shape(tf.reshape(tensor, tf.shape(inputs)), inputs.shape)


def _biased(variance: Any, x: Any, size: int) -> Any:
    """The variance as Keras keeps it, of the unbiased one that the operation gives. Of one value it is 0."""
    count = tf.cast(tf.size(x, out_type=tf.int64) // size, tf.float32)
    return tf.where(count == 1, tf.zeros_like(variance), variance * ((count - 1) / count))


def _move(average: Any, value: Any, momentum: float) -> None:
    average.assign(_float32(average) * momentum + value * (1.0 - momentum))


NORMALIZATIONS = {keras.layers.BatchNormalization: FusedBatchNormalization}
