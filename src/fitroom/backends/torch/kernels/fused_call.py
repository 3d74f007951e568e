"""What the fused operations have in common: each takes the place of a layer's `call`."""

from typing import Any, ClassVar


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
