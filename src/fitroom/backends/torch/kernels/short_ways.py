"""Short ways to carry out the calls in a model's graph: past Keras's bookkeeping, and past views between layers.

Images are handed from layer to layer in PyTorch's order of dimensions. Keras's order would be two more views around
each layer, and two more in the backward pass.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.nn.modules.module import _has_any_global_hook  # no public name tells it

from fitroom.backends.torch.kernels.convolution import FusedConvolution
from fitroom.backends.torch.kernels.forward_pass import ForwardPass
from fitroom.backends.torch.kernels.fused_call import FusedCall
from fitroom.backends.torch.kernels.layouts import ChannelsSecond, channels_second
from fitroom.backends.torch.kernels.plain import ON_VIEWS, PLAIN_LAYERS
from fitroom.keras_model.private import autocast_scope
from fitroom.keras_model.segmented_call import DirectCall
from fitroom.remat.graph import Call

_IMAGES = (4, 5)
"""Dimensions of images and volumes, with batch and channels."""


class ShortWays:
    """The short ways through some calls. `fused` are the fused operations by the id of their layer."""

    inner_form = ChannelsSecond

    def __init__(self, calls: Sequence[Call], fused: Mapping[int, FusedCall], compute_dtype: str) -> None:
        self._fused, self._compute_dtype = fused, compute_dtype
        self.ways = [self._way(call) for call in calls]
        found = zip(calls, self.ways, strict=True)
        served = {id(call.operation): call.operation for call, way in found if way is not None}
        self._weighted = [
            (operation, getattr(torch, layer.compute_dtype))
            for key, layer in served.items()
            if isinstance(operation := fused.get(key), FusedConvolution)
        ]

    @contextmanager
    def begin(self) -> Iterator[ForwardPass]:
        """Begin a forward pass through the calls."""
        forward = ForwardPass(self._weighted)
        yield forward
        forward.settle()

    def _way(self, call: Call) -> DirectCall | None:
        """The short way to carry out one call; None where Keras's bookkeeping is needed."""
        layer = call.operation
        fused = self._fused.get(id(layer))
        if fused is None and not _is_plain(layer):
            return None
        given = [value for value in call.arguments.kwargs.values() if value is not None]
        if call.enters or given or len(call.arguments.args) != 1 or len(call.outputs) != 1 or not _is_simple(layer):
            return None
        argument = call.arguments.args[0]
        takes_list = isinstance(argument, list | tuple)
        if len(call.inputs) != (len(argument) if takes_list else 1):  # a tensor comes twice
            return None
        takes_training = layer._call_has_training_arg
        function = fused or layer.call
        if layer.variables and layer.compute_dtype != self._compute_dtype:
            function = _in_precision_of(layer, function)
        on_views = ON_VIEWS.get(type(layer))
        dtype = getattr(torch, layer.compute_dtype)
        attributes = vars(layer)

        def run(inputs: list[Any], training: Any, forward: Any) -> Any:
            if attributes.get("call") is not fused or _has_hook(attributes):
                return NotImplemented
            are_views = False
            for value in inputs:
                if type(value) is ChannelsSecond:
                    are_views = True
                    value = value.tensor
                elif getattr(value, "_keras_mask", None) is not None:
                    return NotImplemented
                if value.dtype != dtype:
                    return NotImplemented
            output = NotImplemented
            if fused is not None:
                if are_views or inputs[0].ndim in _IMAGES:
                    output = fused.on_view(_view(inputs[0]), training, forward)
            elif are_views and on_views is not None:
                views = [_view(value) for value in inputs]
                if all(view.ndim == views[0].ndim for view in views):
                    output = on_views(layer, views)
            if output is not NotImplemented:
                return output
            if are_views:
                inputs = [value.as_tensor() if type(value) is ChannelsSecond else value for value in inputs]
            values = inputs if takes_list else inputs[0]
            if fused is not None:
                forward.settle()
            return function(values, training=training) if takes_training else function(values)

        return run


def _view(value: Any) -> Any:
    return value.tensor if type(value) is ChannelsSecond else channels_second(value)


def _is_plain(layer: Any) -> bool:
    return type(layer) in PLAIN_LAYERS and "call" not in vars(layer) and layer.built


def _in_precision_of(layer: Any, function: Any) -> Any:
    """A layer's call in the scope that Keras opens around it where its precision is not that of the model."""

    def call(*arguments: Any, **options: Any) -> Any:
        with autocast_scope(layer):
            return function(*arguments, **options)

    return call


_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def _has_hook(attributes: Mapping[str, Any]) -> bool:
    """Whether PyTorch has to call hooks around a layer's call."""
    for name in _HOOKS:
        if attributes[name]:
            return True
    return bool(_has_any_global_hook())


def _is_simple(layer: Any) -> bool:
    """Whether Keras would do nothing around the layer's call that matters: add a loss, recompute."""
    return layer.activity_regularizer is None and not layer._remat_mode and layer.autocast
