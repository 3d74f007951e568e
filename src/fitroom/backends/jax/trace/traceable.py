"""Layers of Keras's that only run operation by operation on JAX, in a form that can be traced for an estimate."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import keras

from fitroom.keras_model.private import override_attribute


@contextmanager
def traceable(model: Any) -> Iterator[None]:
    """For the time of the block random crops are taken at the corner: where they are taken makes no other memory."""
    with ExitStack() as stack:
        for layer in model._flatten_layers():  # no public name for the layers within layers
            if type(layer) is keras.layers.RandomCrop:
                stack.enter_context(override_attribute(layer, "get_random_transformation", _corner))
        yield


def _corner(data: Any, training: bool = True, seed: Any = None) -> tuple[int, int]:
    return 0, 0
