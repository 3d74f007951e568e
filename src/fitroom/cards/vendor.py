"""Whose cards an estimate is for."""

from fitroom.cards.catalogue import Card
from fitroom.errors import InputError


def check_nvidia(card: Card) -> None:
    """Refuse a card whose kernels nobody has looked at."""
    if card.vendor != "NVIDIA":
        raise InputError(
            f"Estimates are for NVIDIA's cards. Received: {card.name!r} by {card.vendor}.",
            hint="pick an NVIDIA card for the kernels' sake, and give this card's memory with `--limit` or `--budget`",
        )
