"""The card and the budget that a plan is for."""

from dataclasses import dataclass

from fitroom.backends.default_share import share_note
from fitroom.budget import Budget
from fitroom.cards.catalogue import Card, find_card
from fitroom.errors import UnknownNameError
from fitroom.estimating.estimate import choose_card
from fitroom.units import format_bytes

RESERVED_SHARE = 0.03
"""The share of the budget that stays free. Validation and saving leave small blocks between the large ones, and a run
may do more than was planned for. Running out of memory costs one compile or more."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """A card with a budget."""

    budget: Budget
    card: Card
    notes: tuple[str, ...] = ()

    @property
    def reserve_bytes(self) -> int:
        """The part of the budget that stays free on purpose."""
        return int(RESERVED_SHARE * self.budget.bytes)

    @property
    def usable_bytes(self) -> int:
        """The most that a step may require."""
        return self.budget.bytes - self.reserve_bytes


def choose_target(budget: Budget | int | str | None, gpu: str | Card | None, backend: str) -> Target:
    """Return the target that a budget and a card mean together.

    With both, the budget caps the card's memory. With neither, the target is the card in this machine, or else a T4, as
    for an estimate.
    """
    if gpu is None and isinstance(budget, str):
        gpu = _find_named_card(budget)
    card, notes = choose_card(gpu)
    if budget is None:
        from fitroom.cards.nvml import live_gpus

        notes = (*notes, *share_note(card, backend))
        is_here = gpu is None and bool(live_gpus())
        found = Budget.of(None if is_here else card.name, backend=backend)
        return Target(budget=found, card=card, notes=notes)
    asked = Budget.of(budget, backend=backend)
    if gpu is not None:
        whole = Budget.of(card.name, backend=backend)
        if asked.bytes > whole.bytes:
            notes = (*notes, f"{format_bytes(asked.bytes)} is more than {card.name} has for training.")
            asked = whole
    return Target(budget=asked, card=card, notes=notes)


def _find_named_card(text: str) -> Card | None:
    try:
        return find_card(text)
    except UnknownNameError:
        return None
