"""Which layers of a model PyTorch's fused operations serve, for the time of a step."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.modules.module import _has_any_global_hook  # no public name tells it

from fitroom.backends.contract import FusedLayer
from fitroom.backends.torch.kernels.convolution import CONVOLUTIONS
from fitroom.backends.torch.kernels.fused_call import FusedCall
from fitroom.backends.torch.kernels.normalization import NORMALIZATIONS
from fitroom.backends.torch.kernels.plain import PLAIN_LAYERS
from fitroom.backends.torch.kernels.pooling import POOLINGS
from fitroom.backends.torch.kernels.recurrent import RECURRENT
from fitroom.keras_model.layers import layer_paths
from fitroom.keras_model.private import autocast_scope, inner_layers
from fitroom.keras_model.segmented_call import DirectCall
from fitroom.remat.graph import Call

_FUSED: dict[type, type[FusedCall]] = CONVOLUTIONS | NORMALIZATIONS | POOLINGS | RECURRENT


@dataclass(frozen=True, kw_only=True)
class ServedLayer:
    """A layer, and what computes it."""

    path: str
    layer: Any
    call: Any
    """In place of the layer's own `call`; None where it is left to Keras."""

    operation: str | None
    """The operation that serves it; None where it is left to Keras."""

    why_not: str | None = None
    """Why it is left to Keras, although there is an operation for its kind."""


class FusedKernels:
    """The layers of one built model that fused operations serve. The model stays as it is but within `during`.

    >>> kernels = FusedKernels(model)  # doctest: +SKIP
    >>> with kernels.during():  # doctest: +SKIP
    ...     model.train_on_batch(x, y)
    """

    def __init__(self, model: Any) -> None:
        self._model = model
        self.layers = list(find_served(model))
        self._calls = [(each.layer, each.call) for each in self.layers if each.call is not None]
        self._fused = {id(layer): call for layer, call in self._calls}

    @contextmanager
    def during(self) -> Iterator[None]:
        """Have the fused operations compute the served layers, whoever calls them, for the time of the block."""
        try:
            for layer, call in self._calls:
                vars(layer).setdefault("call", call)  # past Keras, which would track what is set
            yield
        finally:
            for layer, call in self._calls:
                if vars(layer).get("call") is call:  # else the user set another one since
                    del vars(layer)["call"]

    def direct(self, call: Call) -> DirectCall | None:
        """A short way to carry out one call in a model's graph, past Keras's bookkeeping; None where it is needed."""
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
        if layer.variables and layer.compute_dtype != self._model.compute_dtype:
            function = _in_precision_of(layer, function)
        dtype = getattr(torch, layer.compute_dtype)

        def run(tensors: list[Any], training: Any) -> Any:
            if vars(layer).get("call") is not fused or _has_hook(layer):
                return NotImplemented
            for tensor in tensors:
                if tensor.dtype != dtype or getattr(tensor, "_keras_mask", None) is not None:
                    return NotImplemented
            inputs = tensors if takes_list else tensors[0]
            return function(inputs, training=training) if takes_training else function(inputs)

        return run


def list_fused(model: Any) -> tuple[FusedLayer, ...]:
    """List the layers of a model for whose kind there is a fused operation, as plain values."""
    return tuple(
        FusedLayer(path=each.path, kind=type(each.layer).__name__, operation=each.operation, why_not=each.why_not)
        for each in find_served(model)
    )


def find_served(model: Any) -> Iterator[ServedLayer]:
    """Yield the layers of a model for whose kind there is a fused operation, whether they can be served or not."""
    seen: set[int] = set()
    for path, layer in _all_paths(model):
        fused = _FUSED.get(type(layer))
        if fused is None or id(layer) in seen:
            continue
        seen.add(id(layer))
        why_not = _why_left(layer) or fused.why_not(layer)
        if why_not is None:
            yield ServedLayer(path=path, layer=layer, call=fused(layer), operation=fused.operation)
        else:
            yield ServedLayer(path=path, layer=layer, call=None, operation=None, why_not=why_not)


def _all_paths(model: Any) -> Iterator[tuple[str, Any]]:
    """Yield every layer with its path, those that wrappers and layers of the user's hold included."""
    for path, layer in layer_paths(model):
        yield path, layer
        yield from ((f"{path}/{within.name}", within) for within in inner_layers(layer))
    yield from ((layer.name, layer) for layer in inner_layers(model))  # those that no list of layers shows


def _why_left(layer: Any) -> str | None:
    """Why any layer is left as it is: it is not what its class says."""
    if "call" in vars(layer):
        return "a `call` of its own"
    return "quantized" if getattr(layer, "quantization_mode", None) is not None else None


def _is_plain(layer: Any) -> bool:
    return type(layer) in PLAIN_LAYERS and "call" not in vars(layer) and layer.built


def _in_precision_of(layer: Any, function: Any) -> Any:
    """A layer's call in the scope that Keras opens around it where its precision is not that of the model."""

    def call(*arguments: Any, **options: Any) -> Any:
        with autocast_scope(layer):
            return function(*arguments, **options)

    return call


def _has_hook(layer: Any) -> bool:
    """Whether PyTorch has to call hooks around a layer's call."""
    return bool(
        layer._forward_hooks
        or layer._forward_pre_hooks
        or layer._backward_hooks
        or layer._backward_pre_hooks
        or _has_any_global_hook()
    )


def _is_simple(layer: Any) -> bool:
    """Whether Keras would do nothing around the layer's call that matters: add a loss, recompute."""
    return layer.activity_regularizer is None and not layer._remat_mode and layer.autocast
