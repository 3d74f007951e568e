"""A plan for several cards: the share of each, one recipe for all, and which card binds."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fitroom.budget import Budget
from fitroom.cards.catalogue import Card
from fitroom.distribution.overhead import NCCL_BYTES, allocator_bytes
from fitroom.distribution.shares import check_batch, share_out
from fitroom.errors import NothingFitsError
from fitroom.estimating.devices import gradient_bytes
from fitroom.planning.option import Speed
from fitroom.planning.result import Plan
from fitroom.recipe import Recipe
from fitroom.units import format_bytes

EQUAL_SHARES_ONLY = ("jax",)
"""Backends that share a batch out evenly, whatever the cards."""

OWN_MICRO_BATCHES = ("torch",)
"""Backends on which each device goes over its share in micro-batches of the recipe's size. On the others all devices
go over their shares in the same number of micro-batches."""


@dataclass(frozen=True, kw_only=True)
class Need:
    """What a recipe takes on one card, for its share of a batch."""

    micro_batch: int
    required_bytes: int
    fits: bool
    speed: Speed | None


MakePlan = Callable[[int, Card], Plan]
"""Returns the plan for so many samples on a card."""

TryRecipe = Callable[[Recipe, int, Card], Need]
"""Returns what a recipe takes for so many samples on a card."""


@dataclass(frozen=True, kw_only=True)
class CardShare:
    """What one kind of card gets of a batch, what the recipe of all cards takes there, and the plan for it alone."""

    card: Card
    count: int
    """How many such cards there are."""

    share: int
    """The most samples of a batch that one of them gets."""

    need: Need
    """By the recipe that all cards use."""

    plan: Plan
    """What would be best for this card alone."""

    @property
    def seconds_per_step(self) -> float | None:
        """How long a card takes for its share, predicted; the reduction of gradients is not in it."""
        return self.need.speed.seconds_per_step if self.need.speed else None

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return {
            "gpu": self.card.name,
            "count": self.count,
            "samples": self.share,
            "micro_batch": self.need.micro_batch,
            "required_bytes": self.need.required_bytes,
            "speed": self.need.speed.to_dict() if self.need.speed else None,
            "plan": self.plan.to_dict(),
        }


@dataclass(frozen=True, kw_only=True)
class DevicesPlan:
    """The plan for a batch on several cards."""

    batch_size: int
    shares: tuple[CardShare, ...]
    """One for each kind of card."""

    samples: tuple[int, ...]
    """The share of each card, in the order in which they were named."""

    recipe: Recipe
    """The recipe that all cards use."""

    micro_batch: int
    """The largest micro-batch of a card."""

    backend: str
    sharded: bool
    """Whether the cards divide weights and optimizer state among them, because these do not fit on each."""

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
            "shard_weights": self.sharded,
            "samples": list(self.samples),
            "binding": self.binding,
            "recipe": self.recipe.to_dict() | {"micro_batch": self.micro_batch},
            "seconds_per_step": None if seconds is None else round(seconds, 6),
            "cards": [each.to_dict() for each in self.shares],
            "why": self.why,
        }


def plan_devices(
    cards: Sequence[Card],
    batch_size: int,
    backend: str,
    make_plan: MakePlan,
    try_recipe: TryRecipe,
    batch_statistics: str,
    *,
    sharded: bool = False,
) -> DevicesPlan:
    """Share a batch out among cards, by their predicted speed where the backend allows it, and plan each share.

    All cards use one recipe: that of the card with the least room, or the next one that fits on all of them. Raises
    InputError for fewer samples than cards, and NothingFitsError where there is none. `sharded` says that `make_plan`
    and `try_recipe` are for cards that divide weights and optimizer state among them.
    """
    check_batch(batch_size, len(cards))
    kinds = list(dict.fromkeys(cards))
    rest = batch_size % len(cards) if backend in EQUAL_SHARES_ONLY else 0
    samples = share_out(batch_size - rest, [1.0] * len(cards))
    plans = {
        card: _plan_share(card, max(_own(samples, cards, card)), make_plan, others=len(kinds) > 1) for card in kinds
    }
    if len(kinds) > 1 and backend not in EQUAL_SHARES_ONLY and all(plan.speed for plan in plans.values()):
        speeds = {card: plan.speed.samples_per_second for card, plan in plans.items() if plan.speed}
        by_speed = share_out(batch_size, [speeds[card] for card in cards])
        if min(by_speed) > 0 and by_speed != samples:
            samples = by_speed
            plans = {
                card: _plan_share(card, max(_own(samples, cards, card)), make_plan, others=len(kinds) > 1)
                for card in kinds
            }
    binding, recipe, needs = _choose_recipe(plans, backend, try_recipe)
    shares = tuple(
        CardShare(card=card, count=cards.count(card), share=plan.batch_size, need=needs[card], plan=plan)
        for card, plan in plans.items()
    )
    micro_batch = max(need.micro_batch for need in needs.values())
    return DevicesPlan(
        batch_size=batch_size,
        shares=shares,
        samples=samples,
        recipe=replace(recipe, micro_batch=micro_batch if micro_batch < max(samples) else None),
        micro_batch=micro_batch,
        backend=backend,
        sharded=sharded,
        binding=binding.name,
        why=_explain(shares, binding, backend, batch_statistics, rest),
    )


def _choose_recipe(
    plans: Mapping[Card, Plan], backend: str, try_recipe: TryRecipe
) -> tuple[Card, Recipe, dict[Card, Need]]:
    """The card whose recipe fits on all, that recipe, and what it takes on each."""
    in_order = sorted(plans, key=lambda card: _room(plans[card]))
    short: list[str] = []
    for card, recipe, micro_batch in _recipes(plans, in_order):
        needs = {}
        for other in in_order:
            plan = plans[other]
            share = plan.batch_size
            own = _micro_batch_on(share, micro_batch, plans[card].batch_size, backend)
            if other is card and recipe == plan.recipe:
                required_bytes = plan.estimate.required_bytes
                needs[other] = Need(micro_batch=own, required_bytes=required_bytes, fits=True, speed=plan.speed)
                continue
            needs[other] = try_recipe(replace(recipe, micro_batch=own if own < share else None), share, other)
            if not needs[other].fits:
                short.append(f"{other.name} would need {format_bytes(needs[other].required_bytes)}")
                break
        else:
            return card, recipe, needs
    raise NothingFitsError(
        f"No one recipe fits on all of these cards, though each could train its share by another: {short[0]} with "
        f"{in_order[0].name}'s.",
        smallest_bytes=max(plan.estimate.required_bytes for plan in plans.values()),
        hint=f"leave the {in_order[0].name} out, or keep one precision for all of them by --precision",
    )


def _recipes(plans: Mapping[Card, Plan], in_order: Sequence[Card]) -> Iterator[tuple[Card, Recipe, int]]:
    """The recipes to try, each with its card and micro-batch there: what each card has, then ever smaller ones."""
    for card in in_order:
        yield card, plans[card].recipe, plans[card].micro_batch
    for card in in_order:
        for recipe in plans[card].fallbacks:
            yield card, recipe, recipe.micro_batch or plans[card].batch_size


def _micro_batch_on(share: int, micro_batch: int, share_there: int, backend: str) -> int:
    """The micro-batch for a share, where another card has this one for its own."""
    if backend in OWN_MICRO_BATCHES and micro_batch < share_there:
        return min(micro_batch, share)
    return -(-share // -(-share_there // micro_batch))


def _room(plan: Plan) -> tuple[float, float]:
    """What orders cards by their room, the least first: how far they split their share, then how long they take."""
    return plan.micro_batch / plan.batch_size, -(plan.speed.seconds_per_step if plan.speed else 0.0)


def budget_beside_distribution(
    asked: str | None, card: Card, backend: str, model: Any, *, sharded: bool = False
) -> Budget:
    """The budget of a card, or what was asked for where that is less, without what distribution takes of it.

    An estimate with `sharded` weights is of a program for all cards and has the reduced gradients in it.
    """
    whole = Budget.of(card.name, backend=backend)
    if asked is not None:
        given = Budget.of(asked, backend=backend)
        whole = given if given.bytes < whole.bytes else whole
    added = allocator_bytes(backend, gradient_bytes(model), compiled_together=sharded)
    taken_bytes = NCCL_BYTES + sum(added.values())
    if taken_bytes >= whole.bytes:
        raise NothingFitsError(
            f"Distribution alone takes {format_bytes(taken_bytes)} of {card.name}, which has "
            f"{format_bytes(whole.bytes)} for training.",
            smallest_bytes=taken_bytes,
            hint="train on one card",
        )
    gradients = "" if sharded else " and reduced gradients"
    source = f"{whole.source}, less {format_bytes(taken_bytes)} for NCCL (not measured){gradients}"
    return Budget(bytes=whole.bytes - taken_bytes, source=source)


def _plan_share(card: Card, share: int, make_plan: MakePlan, *, others: bool) -> Plan:
    try:
        return make_plan(share, card)
    except NothingFitsError as error:
        raise NothingFitsError(
            f"{card.name} cannot train its share of {share} samples: {error.message}",
            smallest_bytes=error.smallest_bytes,
            recipe=error.recipe,
            hint=f"leave the {card.name} out" if others else error.hint,
        ) from error


def _own(samples: Sequence[int], cards: Sequence[Card], card: Card) -> list[int]:
    return [size for size, each in zip(samples, cards, strict=True) if each == card]


def _explain(shares: Sequence[CardShare], binding: Card, backend: str, batch_statistics: str, rest: int) -> str:
    said = []
    if len(shares) == 1:
        said.append("All cards are alike.")
    elif backend in EQUAL_SHARES_ONLY:
        said.append("JAX shares a batch out evenly, so that the faster cards wait for the slowest.")
    else:
        said.append("Each card gets samples in proportion to its predicted speed.")
    if rest:
        those = "1 sample that does not divide is" if rest == 1 else f"{rest} samples that do not divide are"
        said.append(f"The {those} computed by all cards, and counted once.")
    if len(shares) > 1:
        bound = next(each for each in shares if each.card == binding)
        is_split = bound.need.micro_batch < bound.share
        reason = "has the least room for its share" if is_split else "takes the longest for its share"
        said.append(f"{binding.name} binds: it {reason}, and all cards use its recipe.")
    said.append(f"BatchNormalization sees {batch_statistics}.")
    return " ".join(said)
