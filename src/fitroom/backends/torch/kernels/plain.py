"""Layers without weights that need no other operation, only less of Keras's bookkeeping around each call.

Keras spends some hundred microseconds of Python on a layer's call: it looks for masks, converts, opens scopes. On a
fast card that is longer than the kernels take.
"""

from collections.abc import Callable, Sequence
from typing import Any

import keras
import torch

from fitroom.backends.torch.kernels.elementwise import activate
from fitroom.backends.torch.kernels.layouts import ChannelsSecond, flat_padding

PLAIN_LAYERS = (
    keras.layers.Activation,
    keras.layers.Add,
    keras.layers.Average,
    keras.layers.Concatenate,
    keras.layers.Cropping2D,
    keras.layers.Flatten,
    keras.layers.GlobalAveragePooling1D,
    keras.layers.GlobalAveragePooling2D,
    keras.layers.GlobalMaxPooling1D,
    keras.layers.GlobalMaxPooling2D,
    keras.layers.LeakyReLU,
    keras.layers.Maximum,
    keras.layers.Multiply,
    keras.layers.Permute,
    keras.layers.ReLU,
    keras.layers.Reshape,
    keras.layers.Softmax,
    keras.layers.Subtract,
    keras.layers.UpSampling2D,
    keras.layers.ZeroPadding2D,
)
"""Their `call` is a function of its tensors alone."""


def _activation(layer: Any, views: Sequence[Any]) -> Any:
    return activate(layer.activation, views[0])


def _of_each_element(layer: Any, views: Sequence[Any]) -> Any:
    return ChannelsSecond(layer.call(views[0]))


def _sum(layer: Any, views: Sequence[Any]) -> Any:
    total = views[0]
    for view in views[1:]:
        total = torch.add(total, view)
    return ChannelsSecond(total)


def _product(layer: Any, views: Sequence[Any]) -> Any:
    product = views[0]
    for view in views[1:]:
        product = torch.mul(product, view)
    return ChannelsSecond(product)


def _concatenation(layer: Any, views: Sequence[Any]) -> Any:
    if layer.axis not in (-1, views[0].ndim - 1):
        return NotImplemented
    return ChannelsSecond(torch.cat(list(views), 1))


def _padded(layer: Any, views: Sequence[Any]) -> Any:
    if layer.data_format != "channels_last":
        return NotImplemented
    return ChannelsSecond(torch.nn.functional.pad(views[0], flat_padding(layer.padding)))


ON_VIEWS: dict[type, Callable[[Any, Sequence[Any]], Any]] = {
    keras.layers.Activation: _activation,
    keras.layers.Add: _sum,
    keras.layers.Concatenate: _concatenation,
    keras.layers.LeakyReLU: _of_each_element,
    keras.layers.Multiply: _product,
    keras.layers.ReLU: _of_each_element,
    keras.layers.ZeroPadding2D: _padded,
}
"""How some of them compute from tensors with channels second, all with as many dimensions."""
