"""Which layers of a model TensorFlow's fused operations serve, for the time of a step in graph mode."""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

from fitroom.backends.fused_layers import ServedLayer, calls_in_place, find_layers
from fitroom.backends.tensorflow.kernels.followers import FOLLOWERS
from fitroom.backends.tensorflow.kernels.normalization import NORMALIZATIONS


class FusedKernels:
    """The layers of one built model that fused operations serve. The model stays as it is but within `during`.

    >>> kernels = FusedKernels(model)  # doctest: +SKIP
    >>> with kernels.during():  # doctest: +SKIP
    ...     model.train_on_batch(x, y)
    """

    def __init__(self, model: Any) -> None:
        self._layers = [*find_served(model), *find_layers(model, FOLLOWERS)]

    def during(self) -> AbstractContextManager[None]:
        """Have the fused operations compute the served layers, whoever calls them, for the time of the block."""
        return calls_in_place(self._layers)


def find_served(model: Any) -> Iterator[ServedLayer]:
    """Yield the layers of a model for whose kind there is a fused operation, whether they can be served or not."""
    return find_layers(model, NORMALIZATIONS)
