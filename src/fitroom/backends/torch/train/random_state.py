"""The state of PyTorch's own random generators, from which modules of PyTorch draw, and a Dropout without a seed."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


def random_state() -> list[Any]:
    """That of the host and, where CUDA is in use, of every card."""
    return [torch.get_rng_state(), torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else None]


def set_random_state(state: list[Any]) -> None:
    """Draw from a state as `random_state` gave it."""
    torch.set_rng_state(state[0])
    if state[1] is not None:
        torch.cuda.set_rng_state_all(state[1])


@contextmanager
def drawing_from(state: list[Any]) -> Iterator[None]:
    """Draw from a state for the time of the block, and then go on as if nothing had been drawn."""
    own = random_state()
    set_random_state(state)
    try:
        yield
    finally:
        set_random_state(own)
