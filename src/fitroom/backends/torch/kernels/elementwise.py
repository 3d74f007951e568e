"""Functions of each element by itself, which do not care in which order the dimensions come."""

from typing import Any

import keras
import torch

from fitroom.backends.torch.kernels.layouts import ChannelsSecond, channels_last

_activations = keras.activations
_ELEMENTWISE = {
    _activations.relu: torch.relu,
    _activations.linear: None,
    None: None,
} | {
    function: function
    for function in (
        _activations.elu,
        _activations.gelu,
        _activations.hard_sigmoid,
        _activations.hard_silu,
        _activations.leaky_relu,
        _activations.mish,
        _activations.relu6,
        _activations.selu,
        _activations.silu,
        _activations.softplus,
        _activations.tanh,
    )
}
"""Activations, and what computes each. Those after which Keras attaches logits to the outputs are not among them."""


def activate(activation: Any, x: Any) -> Any:
    """Apply an activation to a tensor with channels second."""
    try:
        function = _ELEMENTWISE[activation]
    except (KeyError, TypeError):
        return activation(channels_last(x))
    return ChannelsSecond(x if function is None else function(x))
