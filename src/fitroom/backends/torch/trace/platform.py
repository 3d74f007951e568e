"""The device that a traced step is followed for, and how operations are carried out on it."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from fitroom.backends.torch.trace.cuda.accumulation import accumulation
from fitroom.backends.torch.trace.cuda.convolution import CONVOLUTIONS
from fitroom.backends.torch.trace.cuda.functions import CudaFunctions
from fitroom.backends.torch.trace.cuda.layouts import COPIES
from fitroom.backends.torch.trace.cuda.matrices import products_on
from fitroom.backends.torch.trace.cuda.reductions import reductions_on
from fitroom.backends.torch.trace.cuda.values import VALUES
from fitroom.cards.catalogue import Card


@dataclass(frozen=True, kw_only=True)
class Platform:
    """A device as a step sees it."""

    kernels: Mapping[Any, Callable[..., Any]]
    """Operations that differ from what fake tensors on the CPU show, or whose memory does."""

    functions: Callable[[], AbstractContextManager[Any]]
    """A scope in which functions are taken apart as on the device."""


def cpu() -> Platform:
    """PyTorch's CPU."""
    return Platform(kernels=accumulation() | VALUES, functions=nullcontext)


def cuda(card: Card) -> Platform:
    """A card under CUDA."""
    return Platform(
        kernels=accumulation() | VALUES | CONVOLUTIONS | COPIES | products_on(card) | reductions_on(card),
        functions=lambda: CudaFunctions(card),
    )
