"""Which layers of a model PyTorch's fused operations serve, for the time of a step."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

from fitroom.backends.fused_layers import FusedKinds, ServedLayer, calls_in_place, find_layers
from fitroom.backends.torch.kernels.convolution import CONVOLUTIONS
from fitroom.backends.torch.kernels.normalization import NORMALIZATIONS
from fitroom.backends.torch.kernels.pooling import POOLINGS
from fitroom.backends.torch.kernels.recurrent import RECURRENT
from fitroom.backends.torch.kernels.short_ways import ShortWays
from fitroom.remat.graph import Call

_FUSED: FusedKinds = {**CONVOLUTIONS, **NORMALIZATIONS, **POOLINGS, **RECURRENT}


class FusedKernels:
    """The layers of one built model that fused operations serve. The model stays as it is but within `during`.

    >>> kernels = FusedKernels(model)  # doctest: +SKIP
    >>> with kernels.during():  # doctest: +SKIP
    ...     model.train_on_batch(x, y)
    """

    def __init__(self, model: Any) -> None:
        self._model = model
        self.layers = list(find_served(model))
        self._fused = {id(each.layer): each.call for each in self.layers if each.call is not None}

    def during(self) -> AbstractContextManager[None]:
        """Have the fused operations compute the served layers, whoever calls them, for the time of the block."""
        return calls_in_place(self.layers)

    def direct(self, calls: Sequence[Call]) -> ShortWays:
        """The short ways to carry out calls in a model's graph, past Keras's bookkeeping."""
        return ShortWays(calls, self._fused, self._model.compute_dtype)


def find_served(model: Any) -> Iterator[ServedLayer]:
    """Yield the layers of a model for whose kind there is a fused operation, whether they can be served or not."""
    return find_layers(model, _FUSED)
