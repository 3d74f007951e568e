"""Layers behind a normalisation, which compute their input again in the backward pass instead of keeping it.

Behind anything else they are Keras's own.
"""

from typing import Any

import keras
import tensorflow as tf

from fitroom.backends.fused_layers import FusedCall
from fitroom.backends.tensorflow.kernels.recomputable import apply, is_recomputable

_activations = keras.activations
_ELEMENTWISE = (
    _activations.elu,
    _activations.gelu,
    _activations.hard_sigmoid,
    _activations.hard_silu,
    _activations.leaky_relu,
    _activations.mish,
    _activations.relu,
    _activations.relu6,
    _activations.selu,
    _activations.silu,
    _activations.softplus,
    _activations.tanh,
)
"""Those after which Keras attaches logits to the outputs are not among them."""


class _Follower(FusedCall):
    operation = "its input computed again"


class FollowingFunction(_Follower):
    """`call` of a layer without weights that takes hardly any time: an activation, or zeros around its input."""

    @staticmethod
    def why_not(layer: Any) -> str | None:
        """Why a layer is left to Keras, or None where it is served."""
        activation = getattr(layer, "activation", None)
        return None if activation is None or activation in _ELEMENTWISE else "the activation"

    def __call__(self, inputs: Any) -> Any:
        """Compute the outputs."""
        return apply(self._keras_call, [inputs], marks=True)


class FollowingProduct(_Follower):
    """`call` of a Multiply layer: of features and the weight of each channel, say."""

    def __call__(self, inputs: Any) -> Any:
        """Compute the outputs."""
        return apply(lambda *each: self._keras_call(list(each)), list(inputs), marks=True)


class FollowingPooling(_Follower):
    """`call` of a MaxPooling layer."""

    def __call__(self, inputs: Any) -> Any:
        """Compute the outputs."""
        return apply(self._keras_call, [inputs])


class FollowingConvolution(_Follower):
    """`call` of a convolution layer."""

    @staticmethod
    def why_not(layer: Any) -> str | None:
        """Why a layer is left to Keras, or None where it is served."""
        if layer.data_format != "channels_last":
            return "channels first"
        return "groups" if getattr(layer, "groups", 1) != 1 else None

    def __call__(self, inputs: Any) -> Any:
        """Compute the outputs."""
        layer = self._layer
        if not is_recomputable(inputs):
            return self._keras_call(inputs)
        outputs = self._convolve(inputs)
        if layer.bias is not None:
            outputs = keras.ops.add(outputs, keras.ops.reshape(layer.bias, (1,) * (layer.rank + 1) + (-1,)))
        return outputs if layer.activation is None else layer.activation(outputs)

    def _convolve(self, inputs: Any) -> Any:
        layer = self._layer
        return apply(layer.convolution_op, [inputs], [tf.convert_to_tensor(layer.kernel)])


class FollowingDepthwiseConvolution(FollowingConvolution):
    """`call` of a DepthwiseConv layer."""

    def _convolve(self, inputs: Any) -> Any:
        return self._depthwise(inputs, self._layer.kernel)

    def _depthwise(self, inputs: Any, kernel: Any) -> Any:
        layer = self._layer

        def convolve(x: Any, weights: Any) -> Any:
            return keras.ops.depthwise_conv(
                x,
                weights,
                strides=layer.strides,
                padding=layer.padding,
                dilation_rate=layer.dilation_rate,
                data_format=layer.data_format,
            )

        return apply(convolve, [inputs], [tf.convert_to_tensor(kernel)])


class FollowingSeparableConvolution(FollowingDepthwiseConvolution):
    """`call` of a SeparableConv layer. What its first half makes is kept for the second."""

    def _convolve(self, inputs: Any) -> Any:
        layer = self._layer
        x = self._depthwise(inputs, layer.depthwise_kernel)
        return keras.ops.conv(x, layer.pointwise_kernel, strides=1, padding="valid", data_format=layer.data_format)


FOLLOWERS = {
    keras.layers.Activation: FollowingFunction,
    keras.layers.Conv1D: FollowingConvolution,
    keras.layers.Conv2D: FollowingConvolution,
    keras.layers.Conv3D: FollowingConvolution,
    keras.layers.DepthwiseConv1D: FollowingDepthwiseConvolution,
    keras.layers.DepthwiseConv2D: FollowingDepthwiseConvolution,
    keras.layers.ELU: FollowingFunction,
    keras.layers.LeakyReLU: FollowingFunction,
    keras.layers.MaxPooling1D: FollowingPooling,
    keras.layers.MaxPooling2D: FollowingPooling,
    keras.layers.MaxPooling3D: FollowingPooling,
    keras.layers.Multiply: FollowingProduct,
    keras.layers.ReLU: FollowingFunction,
    keras.layers.SeparableConv1D: FollowingSeparableConvolution,
    keras.layers.SeparableConv2D: FollowingSeparableConvolution,
    keras.layers.ZeroPadding2D: FollowingFunction,
}
