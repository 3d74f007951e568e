"""Convolutions channels last from end to end.

Keras copies the input to channels first and back before each convolution, although cuDNN's fastest kernels read it as
it lies. Here it is viewed, and the kernel is brought into layout and precision by one copy.
"""

from collections.abc import Sequence
from typing import Any

import keras
import torch

from fitroom.backends.torch.kernels.fused_call import FusedCall, is_served, value_of
from fitroom.backends.torch.kernels.layouts import channels_last, channels_second, flat_padding, same_padding

_CONVOLVE = {2: torch.nn.functional.conv2d, 3: torch.nn.functional.conv3d}
_FORMATS = {2: torch.channels_last, 3: torch.channels_last_3d}


class FusedConvolution(FusedCall):
    """`call` of a convolution layer: Conv, DepthwiseConv or SeparableConv."""

    operation = "channels-last convolution"

    @staticmethod
    def why_not(layer: Any) -> str | None:
        """Why a layer is left to Keras, or None where it is served."""
        return None if layer.data_format == "channels_last" else "channels first"

    def __call__(self, inputs: Any) -> Any:
        """Compute the outputs."""
        layer = self._layer
        if not is_served(inputs):
            return self._keras_call(inputs)
        x = channels_second(inputs if layer.rank > 1 else inputs.unsqueeze(1))
        x = self._convolve(x, None if layer.bias is None else value_of(layer.bias).to(x.dtype))
        outputs = channels_last(x) if layer.rank > 1 else channels_last(x).squeeze(1)
        return outputs if layer.activation is None else layer.activation(outputs)

    def _convolve(self, x: Any, bias: Any) -> Any:
        layer = self._layer
        return _convolve(x, value_of(layer.kernel), bias, layer.strides, layer.padding, layer.dilation_rate)


class FusedDepthwiseConvolution(FusedConvolution):
    """`call` of a DepthwiseConv layer."""

    def _convolve(self, x: Any, bias: Any) -> Any:
        layer = self._layer
        kernel = _apart(value_of(layer.kernel))
        return _convolve(x, kernel, bias, layer.strides, layer.padding, layer.dilation_rate)


class FusedSeparableConvolution(FusedConvolution):
    """`call` of a SeparableConv layer."""

    def _convolve(self, x: Any, bias: Any) -> Any:
        layer = self._layer
        kernel = _apart(value_of(layer.depthwise_kernel))
        x = _convolve(x, kernel, None, layer.strides, layer.padding, layer.dilation_rate)
        ones = (1,) * layer.rank
        return _convolve(x, value_of(layer.pointwise_kernel), bias, ones, "valid", ones)


def _apart(kernel: Any) -> Any:
    """A kernel of shape (..., channels, multiplier) as one with a group for each channel."""
    return kernel.reshape(*kernel.shape[:-2], 1, -1)


def _convolve(
    x: Any, kernel: Any, bias: Any, strides: Sequence[int], padding: str, dilation: Sequence[int] | int
) -> Any:
    """Convolve (batch, channels, ...) with a kernel in Keras's layout."""
    rank = kernel.ndim - 2
    strides = tuple(strides)
    dilation = (dilation,) * rank if isinstance(dilation, int) else tuple(dilation)
    if rank == 1:  # as an image of one row: cuDNN has no layout with channels last for sequences
        kernel, strides, dilation, rank = kernel.unsqueeze(0), (1, *strides), (1, *dilation), 2
    groups = x.shape[1] // kernel.shape[-2]
    sizes = [reach * (length - 1) + 1 for length, reach in zip(kernel.shape[:rank], dilation, strict=True)]
    pairs = same_padding(x.shape[2:], sizes, strides) if padding == "same" else [(0, 0)] * rank
    if padding == "causal":
        pairs[-1] = (sizes[-1] - 1, 0)
    if any(before != after for before, after in pairs):
        x, pairs = torch.nn.functional.pad(x, flat_padding(pairs)), [(0, 0)] * rank
    weight = kernel.permute(rank + 1, rank, *range(rank)).to(x.dtype, memory_format=_FORMATS[rank])
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
