"""Which cards can train something, how, and how fast.

A plan for each would be a compile or more for each. Memory differs by up to 3 % between cards, so it is estimated on
one card of each kind, and what was learnt there is used for all: these answers are interpolated, and keep a larger
reserve.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from fitroom.budget import Budget
from fitroom.cards.catalogue import Card, all_cards, find_card
from fitroom.errors import NothingFitsError
from fitroom.planning.option import Option
from fitroom.planning.planner import Planner, Question, Say
from fitroom.planning.room import Room

REFERENCE_CARDS = ("L4", "T4")
"""With and without bfloat16, both with a middling memory."""

_DIFFERENCE = 0.97
"""Of the budget: what cards differ by is left free as well."""


@dataclass(frozen=True, kw_only=True)
class CardPlan:
    """What one card would do."""

    card: Card
    budget: Budget
    option: Option | None
    """None where nothing fits."""

    batch_size: int

    def to_dict(self) -> dict[str, Any]:
        """As plain values, for JSON."""
        return {
            "gpu": self.card.name,
            "memory_bytes": self.card.memory_bytes,
            "budget_bytes": self.budget.bytes,
            "batch_size": self.batch_size,
            "option": self.option.to_dict() if self.option else None,
        }


def plan_for_cards(
    question: Question, cards: Sequence[Card] | None = None, say: Say = lambda text: None
) -> list[CardPlan]:
    """One answer a card, those with the least memory first."""
    from fitroom.backends.choose import current_backend
    from fitroom.keras_model.input_batch import symbolic_calls

    backend = current_backend().name
    with symbolic_calls():
        return _plans(question, cards or all_cards(), backend, say)


def _plans(question: Question, cards: Sequence[Card], backend: str, say: Say) -> list[CardPlan]:
    planners = [_learnt(question, find_card(name), backend, say) for name in REFERENCE_CARDS]
    found = []
    for card in sorted(cards, key=lambda card: (card.memory_bytes, card.bandwidth_bytes_per_second)):
        budget = Budget.of(card.name, backend=backend)
        narrowed = Room(budget=replace(budget, bytes=int(_DIFFERENCE * budget.bytes)), card=card)
        planner = planners[0 if card.bf16_flops else 1]
        option = planner.guess(narrowed)
        found.append(CardPlan(card=card, budget=budget, option=option, batch_size=question.batch_size))
    return found


def _learnt(question: Question, card: Card, backend: str, say: Say) -> Planner:
    """A planner that has estimated what matters on one card."""
    planner = Planner(question, Room(budget=Budget.of(card.name, backend=backend), card=card), say)
    with suppress(NothingFitsError):  # it has learnt all the same
        planner.plan()
    return planner
