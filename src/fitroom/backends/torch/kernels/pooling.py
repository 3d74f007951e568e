"""Pooling channels last. Keras's copies to channels first, and hands that layout on to the layers after it."""

from typing import Any

import keras
import torch

from fitroom.backends.torch.kernels.forward_pass import ForwardPass
from fitroom.backends.torch.kernels.fused_call import FusedCall, is_served
from fitroom.backends.torch.kernels.layouts import (
    ChannelsSecond,
    channels_last,
    channels_second,
    flat_padding,
    same_padding,
)

_functional = torch.nn.functional
_MAX = {2: _functional.max_pool2d, 3: _functional.max_pool3d}
_AVERAGE = {2: _functional.avg_pool2d, 3: _functional.avg_pool3d}


class FusedPooling(FusedCall):
    """`call` of a MaxPooling or AveragePooling layer."""

    operation = "channels-last pooling"

    @staticmethod
    def why_not(layer: Any) -> str | None:
        """Why a layer is left to Keras, or None where it is served."""
        return None if layer.data_format == "channels_last" else "channels first"

    def __call__(self, inputs: Any) -> Any:
        """Compute the outputs."""
        layer = self._layer
        if not is_served(inputs):
            return self._keras_call(inputs)
        rank = inputs.ndim - 2
        sizes, strides = list(layer.pool_size), list(layer.strides)
        if rank == 1:  # as an image of one row
            sizes, strides = [1, *sizes], [1, *strides]
        pooled = self._pool(channels_second(inputs.unsqueeze(1) if rank == 1 else inputs), sizes, strides)
        if pooled is None:
            return self._keras_call(inputs)
        return channels_last(pooled).squeeze(1) if rank == 1 else channels_last(pooled)

    def on_view(self, x: Any, training: Any, forward: ForwardPass) -> Any:
        """Compute the outputs."""
        layer = self._layer
        pooled = self._pool(x, list(layer.pool_size), list(layer.strides)) if is_served(x) else None
        return NotImplemented if pooled is None else ChannelsSecond(pooled)

    def _pool(self, x: Any, sizes: list[int], strides: list[int]) -> Any:
        layer = self._layer
        pairs = same_padding(x.shape[2:], sizes, strides) if layer.padding == "same" else [(0, 0)] * len(sizes)
        pool = _pool_max if layer.pool_mode == "max" else _pool_average
        return pool(x, sizes, strides, pairs)


def _pool_max(x: Any, sizes: list[int], strides: list[int], pairs: list[tuple[int, int]]) -> Any:
    pool = _MAX[len(sizes)]
    if all(before == after for before, after in pairs):
        return pool(x, sizes, strides, [before for before, _ in pairs])
    if _is_rounding_up(x, sizes, strides, pairs):
        return pool(x, sizes, strides, 0, ceil_mode=True)
    # Never the largest, and no gradient flows into it. Keras repeats the border instead, which has the same maximum.
    return pool(_functional.pad(x, flat_padding(pairs), value=-torch.inf), sizes, strides)


def _is_rounding_up(x: Any, sizes: list[int], strides: list[int], pairs: list[tuple[int, int]]) -> bool:
    """Whether the padding does no more than let the last window reach over the end, which needs no padded copy."""
    if any(before for before, _ in pairs):
        return False
    wanted = [-(-length // stride) for length, stride in zip(x.shape[2:], strides, strict=True)]
    reached = [
        -(-(length - size) // stride) + 1 for length, size, stride in zip(x.shape[2:], sizes, strides, strict=True)
    ]
    return wanted == reached


def _pool_average(x: Any, sizes: list[int], strides: list[int], pairs: list[tuple[int, int]]) -> Any:
    """The average, or None where the padding differs from side to side: Keras then repeats the border."""
    if any(before != after for before, after in pairs):
        return None
    padding = [before for before, _ in pairs]
    return _AVERAGE[len(sizes)](x, sizes, strides, padding, count_include_pad=False)


POOLINGS = {
    keras.layers.MaxPooling1D: FusedPooling,
    keras.layers.MaxPooling2D: FusedPooling,
    keras.layers.MaxPooling3D: FusedPooling,
    keras.layers.AveragePooling1D: FusedPooling,
    keras.layers.AveragePooling2D: FusedPooling,
    keras.layers.AveragePooling3D: FusedPooling,
}
