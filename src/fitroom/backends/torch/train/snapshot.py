"""The state that a step starts from, to go back to: values of tensors, and the state of random generators."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch


class Snapshot:
    """Copies of some tensors, which can be restored in place."""

    def __init__(self, tensors: Sequence[Any]) -> None:
        self.tensors = [tensor.detach() if tensor.requires_grad else tensor for tensor in tensors]
        self.copies = _copy(self.tensors)

    def restore(self) -> None:
        """Give every tensor its old value, without taking memory."""
        if self.tensors:
            torch._foreach_copy_(self.tensors, self.copies)


def _copy(tensors: list[Any]) -> list[Any]:
    """Copies of some tensors; those of floats in a few launches of a kernel. Times one is exact, for -0 too."""
    floats = [tensor for tensor in tensors if tensor.is_floating_point()]
    copies = iter(torch._foreach_mul(floats, 1) if floats else ())
    return [next(copies) if tensor.is_floating_point() else tensor.clone() for tensor in tensors]


def random_state() -> list[Any]:
    """The state of PyTorch's own random generators: of the host and, where CUDA is in use, of every card.

    Modules of PyTorch draw from them, and so does a Dropout without a seed.
    """
    return [torch.get_rng_state(), torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else None]


def set_random_state(state: list[Any]) -> None:
    """Set PyTorch's random generators to a state that `random_state` returned."""
    torch.set_rng_state(state[0])
    if state[1] is not None:
        torch.cuda.set_rng_state_all(state[1])


@contextmanager
def use_random_state(state: list[Any]) -> Iterator[None]:
    """Draw random numbers from a state during the block; afterwards the generators are as they were."""
    own = random_state()
    set_random_state(state)
    try:
        yield
    finally:
        set_random_state(own)
