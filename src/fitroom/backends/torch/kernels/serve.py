"""Which layers of a model PyTorch's fused operations serve, for the time of a step."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from fitroom.backends.contract import FusedLayer
from fitroom.backends.torch.kernels.convolution import CONVOLUTIONS
from fitroom.backends.torch.kernels.fused_call import FusedCall
from fitroom.backends.torch.kernels.normalization import NORMALIZATIONS
from fitroom.backends.torch.kernels.pooling import POOLINGS
from fitroom.backends.torch.kernels.recurrent import RECURRENT
from fitroom.backends.torch.kernels.short_ways import ShortWays
from fitroom.keras_model.layers import layer_paths
from fitroom.keras_model.private import inner_layers
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

    def direct(self, calls: Sequence[Call]) -> ShortWays:
        """The short ways to carry out calls in a model's graph, past Keras's bookkeeping."""
        return ShortWays(calls, self._fused, self._model.compute_dtype)


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
