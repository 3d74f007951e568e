"""Convolutions channels last from end to end.

Keras copies the input to channels first and back before each convolution, although cuDNN's fastest kernels read it as
it lies. Here it is viewed, and the kernel is brought into layout and precision by one copy.
"""

from collections.abc import Sequence
from typing import Any, ClassVar

import keras
import torch

from fitroom.backends.torch.kernels.elementwise import activate
from fitroom.backends.torch.kernels.forward_pass import ForwardPass
from fitroom.backends.torch.kernels.fused_call import FusedCall, is_served, value_of
from fitroom.backends.torch.kernels.layouts import channels_last, channels_second, flat_padding, same_padding
from fitroom.backends.torch.kernels.weights import Kernel, Weight, as_depthwise_weight, as_weight

_CONVOLVE = {2: torch.nn.functional.conv2d, 3: torch.nn.functional.conv3d}


class FusedConvolution(FusedCall):
    """`call` of a convolution layer: Conv, DepthwiseConv or SeparableConv."""

    operation = "channels-last convolution"

    @staticmethod
    def why_not(layer: Any) -> str | None:
        """Why a layer is left to Keras, or None where it is served."""
        return None if layer.data_format == "channels_last" else "channels first"

    kernels: ClassVar[tuple[tuple[str, Kernel], ...]] = (("kernel", as_weight),)
    """The names of the layer's kernels, and how PyTorch's functions see each of them."""

    def __call__(self, inputs: Any) -> Any:
        """Compute the outputs."""
        layer = self._layer
        if not is_served(inputs):
            return self._keras_call(inputs)
        x = channels_second(inputs if layer.rank > 1 else inputs.unsqueeze(1))
        x = self._convolve(x, *(given.in_place() for given in self.weights(x.dtype)))
        outputs = channels_last(x) if layer.rank > 1 else channels_last(x).squeeze(1)
        return outputs if layer.activation is None else layer.activation(outputs)

    def on_view(self, x: Any, training: Any, forward: ForwardPass) -> Any:
        """Compute the outputs, with the copies of weights that the whole forward pass makes at once."""
        if x.ndim != self._layer.rank + 2 or not is_served(x):
            return NotImplemented
        return activate(self._layer.activation, self._convolve(x, *forward.weights_of(self)))

    def weights(self, dtype: Any) -> list[Weight]:
        """The kernels and the bias, as they are to be copied into a precision."""
        layer = self._layer
        weights = [Weight(value_of(getattr(layer, name)), view, dtype) for name, view in self.kernels]
        return weights if layer.bias is None else [*weights, Weight(value_of(layer.bias), None, dtype)]

    def _convolve(self, x: Any, kernel: Any, bias: Any = None) -> Any:
        layer = self._layer
        return _convolve(x, kernel, bias, layer.strides, layer.padding, layer.dilation_rate)


class FusedDepthwiseConvolution(FusedConvolution):
    """`call` of a DepthwiseConv layer."""

    kernels = (("kernel", as_depthwise_weight),)


class FusedSeparableConvolution(FusedConvolution):
    """`call` of a SeparableConv layer."""

    kernels = (("depthwise_kernel", as_depthwise_weight), ("pointwise_kernel", as_weight))

    def _convolve(self, x: Any, depthwise: Any, pointwise: Any, bias: Any = None) -> Any:  # type: ignore[override]
        layer = self._layer
        x = _convolve(x, depthwise, None, layer.strides, layer.padding, layer.dilation_rate)
        return _convolve(x, pointwise, bias, (1,) * layer.rank, "valid", 1)


def _convolve(
    x: Any, weight: Any, bias: Any, strides: Sequence[int], padding: str, dilation: Sequence[int] | int
) -> Any:
    """Convolve (batch, channels, ...) with a weight in PyTorch's layout."""
    rank = weight.ndim - 2
    strides = tuple(strides)
    dilation = (dilation,) * rank if isinstance(dilation, int) else tuple(dilation)
    if len(strides) < rank:  # a sequence, as an image of one row
        strides, dilation = (1, *strides), (1, *dilation)[-rank:]
    groups = x.shape[1] // weight.shape[1]
    if padding == "valid":
        return _CONVOLVE[rank](x, weight, bias, strides, 0, dilation, groups)
    sizes = [reach * (length - 1) + 1 for length, reach in zip(weight.shape[2:], dilation, strict=True)]
    pairs = same_padding(x.shape[2:], sizes, strides) if padding == "same" else [(0, 0)] * rank
    if padding == "causal":
        pairs[-1] = (sizes[-1] - 1, 0)
    if any(before != after for before, after in pairs):
        x, pairs = torch.nn.functional.pad(x, flat_padding(pairs)), [(0, 0)] * rank
    return _CONVOLVE[rank](x, weight, bias, strides, [before for before, _ in pairs], dilation, groups)


CONVOLUTIONS = {
    keras.layers.Conv1D: FusedConvolution,
    keras.layers.Conv2D: FusedConvolution,
    keras.layers.Conv3D: FusedConvolution,
    keras.layers.DepthwiseConv1D: FusedDepthwiseConvolution,
    keras.layers.DepthwiseConv2D: FusedDepthwiseConvolution,
    keras.layers.SeparableConv1D: FusedSeparableConvolution,
    keras.layers.SeparableConv2D: FusedSeparableConvolution,
}
