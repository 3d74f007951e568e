"""The share of a card that JAX takes for its allocator by default."""

import os

from fitroom.cards.catalogue import Card
from fitroom.cards.overhead import visible_bytes
from fitroom.errors import InputError

DEFAULT_FRACTION = 0.75
"""The share that JAX takes unless a setting says otherwise."""

_SETTINGS = ("XLA_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_MEM_FRACTION")
"""The environment variables that set the share, the newer name first."""


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
