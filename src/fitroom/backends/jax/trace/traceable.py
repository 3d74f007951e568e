"""Keras layers that JAX can only run operation by operation, made traceable for an estimate."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import keras

from fitroom.keras_model.private import override_attribute


@contextmanager
def make_traceable(model: Any) -> Iterator[None]:
    """Take random crops at the corner during the block, without random numbers: memory does not depend on the place."""
    with ExitStack() as stack:
        for layer in model._flatten_layers():  # no public name for the layers within layers
            if type(layer) is keras.layers.RandomCrop:
                stack.enter_context(override_attribute(layer, "get_random_transformation", _corner))
        yield


def _corner(data: Any, training: bool = True, seed: Any = None) -> tuple[int, int]:
    return 0, 0
