"""How much of a card JAX takes for its allocator."""

import os

from fitroom.cards.catalogue import Card
from fitroom.cards.overhead import visible_bytes
from fitroom.errors import InputError

DEFAULT_FRACTION = 0.75
"""What JAX takes unless it is told otherwise."""

_SETTINGS = ("XLA_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_MEM_FRACTION")
"""The variables that tell it, the newer name first."""


def default_limit_bytes(card: Card) -> int:
    """The allocator's limit on a card, as JAX would set it in this environment."""
    return int(visible_bytes(card.memory_bytes) * _fraction())


def _fraction() -> float:
    for name in _SETTINGS:
        if setting := os.environ.get(name):
            try:
                fraction = float(setting)
            except ValueError:
                fraction = 0.0
            if not 0 < fraction <= 1:
                raise InputError(
                    f"{name} must be a part of the card, over 0 and up to 1. Received: {setting!r}.",
                    hint=f"unset it for {DEFAULT_FRACTION}, or give the estimate a limit of its own",
                )
            return fraction
    return DEFAULT_FRACTION
