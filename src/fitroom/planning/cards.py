"""Plans for all cards of the catalogue: which can train a model, with which recipe, and how fast.

A plan for each card would cost at least one compile each. Memory differs by up to 3 % between cards, so it is estimated
on one reference card of each kind and predicted for the others, with a larger reserve.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from fitroom.budget import Budget
from fitroom.cards.catalogue import Card, all_cards, find_card
from fitroom.errors import NothingFitsError
from fitroom.planning.option import Option
from fitroom.planning.planner import Planner
from fitroom.planning.request import PlanRequest, Say
from fitroom.planning.target import Target

REFERENCE_CARDS = ("L4", "T4")
"""One card with bfloat16 and one without, both with a medium amount of memory."""

_SHARE_FOR_PREDICTION = 0.97
"""The share of the budget to plan for: the difference between cards stays free as well."""


@dataclass(frozen=True, kw_only=True)
class CardPlan:
    """The recipe for one card, or that nothing fits."""

    card: Card
    budget: Budget
    option: Option | None
    """None where nothing fits."""

    batch_size: int

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return {
            "gpu": self.card.name,
            "memory_bytes": self.card.memory_bytes,
            "budget_bytes": self.budget.bytes,
            "batch_size": self.batch_size,
            "option": self.option.to_dict() if self.option else None,
        }


def plan_for_cards(
    request: PlanRequest, cards: Sequence[Card] | None = None, say: Say = lambda text: None
) -> list[CardPlan]:
    """Return one answer for each card, those with the least memory first."""
    from fitroom.backends.choose import current_backend
    from fitroom.keras_model.input_batch import symbolic_calls

    backend = current_backend().name
    with symbolic_calls():
        return _plan_each(request, cards or all_cards(), backend, say)


def _plan_each(request: PlanRequest, cards: Sequence[Card], backend: str, say: Say) -> list[CardPlan]:
    planners = [
        _learn_on(request, find_card(name), backend, say, place=f"card {number} of {len(REFERENCE_CARDS)}, ")
        for number, name in enumerate(REFERENCE_CARDS, 1)
    ]
    found = []
    for card in sorted(cards, key=lambda card: (card.memory_bytes, card.bandwidth_bytes_per_second)):
        budget = Budget.of(card.name, backend=backend)
        target = Target(budget=replace(budget, bytes=int(_SHARE_FOR_PREDICTION * budget.bytes)), card=card)
        planner = planners[0 if card.bf16_flops else 1]
        option = planner.guess(target)
        found.append(CardPlan(card=card, budget=budget, option=option, batch_size=request.batch_size))
    return found


def _learn_on(request: PlanRequest, card: Card, backend: str, say: Say, *, place: str) -> Planner:
    """Return a planner that has made the estimates for one card."""
    planner = Planner(request, Target(budget=Budget.of(card.name, backend=backend), card=card), say, place=place)
    with suppress(NothingFitsError):  # its estimates were made all the same
        planner.plan()
    return planner
