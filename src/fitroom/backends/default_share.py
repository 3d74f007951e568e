"""The share of a card that a framework takes by default, compared with what the card can give.

Nothing here imports the framework.
"""

import importlib

from fitroom.cards.catalogue import Card
from fitroom.cards.overhead import context_bytes, visible_bytes
from fitroom.units import format_bytes

_NAMES = {"jax": "JAX", "tensorflow": "TensorFlow"}
_NEARLY_ALL = 0.98


def share_note(card: Card, backend: str) -> tuple[str, ...]:
    """Why an estimate and a plan for one card have other limits; empty where they are the same.

    An estimate is of plain `model.fit`, for which a framework takes its own share. A plan is for what the card can
    give, which training has where the framework is told before it starts.
    """
    if backend not in _NAMES:
        return ()
    own_bytes: int = importlib.import_module(f"fitroom.backends.{backend}.pool").default_limit_bytes(card)
    budget_bytes = card.memory_bytes - context_bytes(card, backend)
    if own_bytes >= _NEARLY_ALL * budget_bytes:
        return ()
    size = format_bytes(budget_bytes)
    ways = [f"`fitroom train --budget {size.replace(' ', '')}`"]
    if backend == "jax":
        ways.append(f"XLA_CLIENT_MEM_FRACTION={budget_bytes / visible_bytes(card.memory_bytes):.2f} before JAX starts")
    return (
        f"{_NAMES[backend]} by itself takes {format_bytes(own_bytes)} of {card.name}: estimates are for that. "
        f"The card can give {size}: plans are for that, and {' or '.join(ways)} has it taken.",
    )
