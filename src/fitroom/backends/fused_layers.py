"""Layers that a framework's fused operations compute in place of Keras's `call`, found in a model and set on it."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

from fitroom.backends.contract import FusedLayer
from fitroom.keras_model.layers import layer_paths
from fitroom.keras_model.private import inner_layers


class FusedCall:
    """In place of the `call` of one layer of Keras's. What an operation cannot do, Keras's own `call` does."""

    operation: ClassVar[str]
    """What computes the layer, for people."""

    def __init__(self, layer: Any) -> None:
        self._layer = layer
        self._keras_call = type(layer).call.__get__(layer)

    @staticmethod
    def why_not(layer: Any) -> str | None:
        """Why a layer is left to Keras, or None where it is served."""
        return None

    def __call__(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """Compute the layer's outputs, as its `call` does."""
        raise NotImplementedError


FusedKinds = Mapping[type, type[FusedCall]]
"""The operation for each class of layers that has one."""


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

    def described(self) -> FusedLayer:
        """The same as plain values."""
        return FusedLayer(
            path=self.path, kind=type(self.layer).__name__, operation=self.operation, why_not=self.why_not
        )


def find_layers(model: Any, kinds: FusedKinds) -> Iterator[ServedLayer]:
    """Yield the layers of a model for whose kind there is a fused operation, whether they can be served or not."""
    seen: set[int] = set()
    for path, layer in _all_paths(model):
        fused = kinds.get(type(layer))
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


@contextmanager
def calls_in_place(layers: Sequence[ServedLayer]) -> Iterator[None]:
    """Have the fused operations compute the served layers, whoever calls them, for the time of the block."""
    calls = [(each.layer, each.call) for each in layers if each.call is not None]
    try:
        for layer, call in calls:
            vars(layer).setdefault("call", call)  # past Keras, which would track what is set
        yield
    finally:
        for layer, call in calls:
            if vars(layer).get("call") is call:  # else the user set another one since
                del vars(layer)["call"]
