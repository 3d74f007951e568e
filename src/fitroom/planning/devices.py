"""A plan for several cards: the share of each, one recipe for all, and which card binds."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from fitroom.budget import Budget
from fitroom.cards.catalogue import Card
from fitroom.distribution.overhead import NCCL_BYTES, allocator_bytes
from fitroom.distribution.shares import check_batch, share_out
from fitroom.errors import NothingFitsError
from fitroom.estimating.devices import gradient_bytes
from fitroom.planning.result import Plan
from fitroom.units import format_bytes

EQUAL_SHARES_ONLY = ("jax",)
"""Backends that share a batch out evenly, whatever the cards."""

MakePlan = Callable[[int, Card], Plan]
"""Returns the plan for so many samples on a card."""


@dataclass(frozen=True, kw_only=True)
class CardShare:
    """What one kind of card gets of a batch, and the plan for it alone."""

    card: Card
    count: int
    """How many such cards there are."""

    share: int
    """The most samples of a batch that one of them gets."""

    plan: Plan

    @property
    def seconds_per_step(self) -> float | None:
        """How long a card takes for its share, predicted; the reduction of gradients is not in it."""
        return self.plan.speed.seconds_per_step if self.plan.speed else None

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return {"gpu": self.card.name, "count": self.count, "samples": self.share, "plan": self.plan.to_dict()}


@dataclass(frozen=True, kw_only=True)
class DevicesPlan:
    """The plan for a batch on several cards."""

    batch_size: int
    shares: tuple[CardShare, ...]
    """One for each kind of card."""

    samples: tuple[int, ...]
    """The share of each card, in the order in which they were named."""

    backend: str
    binding: str
    """The name of the card whose recipe all of them use: the one with the least room for its share."""

    why: str
    """Why it binds, and what BatchNormalization sees, in whole sentences."""

    @property
    def plan(self) -> Plan:
        """The plan of the card that binds."""
        return next(each.plan for each in self.shares if each.card.name == self.binding)

    @property
    def seconds_per_step(self) -> float | None:
        """How long a step takes: all wait for the slowest. Without the reduction of gradients."""
        times = [each.seconds_per_step for each in self.shares]
        return max(time for time in times if time is not None) if None not in times else None

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        seconds = self.seconds_per_step
        return {
            "schema_version": 1,
            "batch_size": self.batch_size,
            "backend": self.backend,
            "samples": list(self.samples),
            "binding": self.binding,
            "recipe": self.plan.recipe.to_dict() | {"micro_batch": self.plan.micro_batch},
            "seconds_per_step": None if seconds is None else round(seconds, 6),
            "cards": [each.to_dict() for each in self.shares],
            "why": self.why,
        }


def plan_devices(
    cards: Sequence[Card], batch_size: int, backend: str, make_plan: MakePlan, batch_statistics: str
) -> DevicesPlan:
    """Share a batch out among cards, by their predicted speed where the backend allows it, and plan each share.

    Raises InputError for fewer samples than cards, and NothingFitsError where a card cannot train its share.
    """
    check_batch(batch_size, len(cards))
    kinds = list(dict.fromkeys(cards))
    samples = share_out(batch_size, [1.0] * len(cards))
    found = {card: _plan_share(card, max(_own(samples, cards, card)), make_plan) for card in kinds}
    if len(kinds) > 1 and backend not in EQUAL_SHARES_ONLY and all(plan.speed for plan in found.values()):
        speeds = {card: plan.speed.samples_per_second for card, plan in found.items() if plan.speed}
        by_speed = share_out(batch_size, [speeds[card] for card in cards])
        if min(by_speed) > 0:
            samples = by_speed
            found = {card: _plan_share(card, max(_own(samples, cards, card)), make_plan) for card in kinds}
    shares = tuple(
        CardShare(card=card, count=cards.count(card), share=max(_own(samples, cards, card)), plan=plan)
        for card, plan in found.items()
    )
    binding = min(shares, key=lambda each: (each.plan.micro_batch / each.share, -(each.seconds_per_step or 0.0)))
    return DevicesPlan(
        batch_size=batch_size,
        shares=shares,
        samples=samples,
        backend=backend,
        binding=binding.card.name,
        why=_explain(shares, binding, backend, batch_statistics),
    )


def budget_beside_distribution(asked: str | None, card: Card, backend: str, model: Any) -> Budget:
    """The budget of a card, or what was asked for where that is less, without what distribution takes of it."""
    whole = Budget.of(card.name, backend=backend)
    if asked is not None:
        given = Budget.of(asked, backend=backend)
        whole = given if given.bytes < whole.bytes else whole
    added = allocator_bytes(backend, gradient_bytes(model), compiled_together=False)
    taken_bytes = NCCL_BYTES + sum(added.values())
    if taken_bytes >= whole.bytes:
        raise NothingFitsError(
            f"Distribution alone takes {format_bytes(taken_bytes)} of {card.name}, which has "
            f"{format_bytes(whole.bytes)} for training.",
            smallest_bytes=taken_bytes,
            hint="train on one card",
        )
    source = f"{whole.source}, less {format_bytes(taken_bytes)} for NCCL (not measured) and reduced gradients"
    return Budget(bytes=whole.bytes - taken_bytes, source=source)


def _plan_share(card: Card, share: int, make_plan: MakePlan) -> Plan:
    try:
        return make_plan(share, card)
    except NothingFitsError as error:
        raise NothingFitsError(
            f"{card.name} cannot train its share of {share} samples: {error.message}",
            smallest_bytes=error.smallest_bytes,
            recipe=error.recipe,
            hint=f"leave the {card.name} out; on JAX, `--shard-weights` of `fitroom estimate` divides the weights",
        ) from error


def _own(samples: Sequence[int], cards: Sequence[Card], card: Card) -> list[int]:
    return [size for size, each in zip(samples, cards, strict=True) if each == card]


def _explain(shares: Sequence[CardShare], binding: CardShare, backend: str, batch_statistics: str) -> str:
    said = []
    if len(shares) == 1:
        said.append("All cards are alike.")
    elif backend in EQUAL_SHARES_ONLY:
        said.append("JAX shares a batch out evenly, so that the faster cards wait for the slowest.")
    else:
        said.append("Each card gets samples in proportion to its predicted speed.")
    if len(shares) > 1:
        is_split = binding.plan.micro_batch < binding.share
        reason = "has the least room for its share" if is_split else "takes the longest for its share"
        said.append(f"{binding.card.name} binds: it {reason}, and all cards use its recipe.")
    said.append(f"BatchNormalization sees {batch_statistics}.")
    return " ".join(said)
