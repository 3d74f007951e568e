"""For which card and how many bytes a plan is."""

from dataclasses import dataclass

from fitroom.budget import Budget
from fitroom.errors import UnknownNameError
from fitroom.estimating.cards import Card, find_card
from fitroom.estimating.estimate import choose_card
from fitroom.units import format_bytes

RESERVED_PART = 0.03
"""Of the budget, left free: validation and saving leave small blocks between the large ones, and what is planned for
is not all that ever happens. Running out costs a compile or more."""


@dataclass(frozen=True, kw_only=True)
class Room:
    """What there is to train in."""

    budget: Budget
    card: Card
    notes: tuple[str, ...] = ()

    @property
    def reserve_bytes(self) -> int:
        """What is left free on purpose."""
        return int(RESERVED_PART * self.budget.bytes)

    @property
    def usable_bytes(self) -> int:
        """What a step may require."""
        return self.budget.bytes - self.reserve_bytes


def room_of(budget: Budget | int | str | None, gpu: str | Card | None, backend: str) -> Room:
    """A card, a size, both (that card, capped), or neither: the card in this machine."""
    if gpu is None and isinstance(budget, str):
        gpu = _card_named(budget)
    if budget is None and gpu is None:
        live = Budget.of(None, backend=backend)
        return Room(budget=live, card=choose_card(None)[0])
    card, notes = choose_card(gpu)
    if budget is None:
        return Room(budget=Budget.of(card.name, backend=backend), card=card, notes=notes)
    asked = Budget.of(budget, backend=backend)
    if gpu is not None:
        whole = Budget.of(card.name, backend=backend)
        if asked.bytes > whole.bytes:
            notes = (*notes, f"{format_bytes(asked.bytes)} is more than {card.name} has for training.")
            asked = whole
    return Room(budget=asked, card=card, notes=notes)


def _card_named(text: str) -> Card | None:
    try:
        return find_card(text)
    except UnknownNameError:
        return None
