"""For which card and how many bytes a plan is."""

from dataclasses import dataclass

from fitroom.backends.default_share import share_note
from fitroom.budget import Budget
from fitroom.cards.catalogue import Card, find_card
from fitroom.errors import UnknownNameError
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
    """A card, a size, both (that card, capped), or neither: the card in this machine, or as for an estimate a T4."""
    if gpu is None and isinstance(budget, str):
        gpu = _card_named(budget)
    card, notes = choose_card(gpu)
    if budget is None:
        from fitroom.cards.nvml import live_gpus

        notes = (*notes, *share_note(card, backend))
        is_here = gpu is None and bool(live_gpus())
        found = Budget.of(None if is_here else card.name, backend=backend)
        return Room(budget=found, card=card, notes=notes)
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
