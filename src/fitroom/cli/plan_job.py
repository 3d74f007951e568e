"""The work of `fitroom plan`: for one card and budget, or for every card of the catalogue."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from fitroom.backends.choose import choose_backend
from fitroom.backends.quiet import quieten, quieten_for_estimates
from fitroom.budget import Budget
from fitroom.cards.catalogue import Card, check_nvidia, find_card
from fitroom.cards.nvml import live_gpus
from fitroom.cli.answer_cache import key_of, load_answer, store_answer
from fitroom.distribution.shares import check_batch
from fitroom.errors import InputError, NothingFitsError, UnknownNameError
from fitroom.estimating.devices import BATCH_STATISTICS, why_not_sharded
from fitroom.input_sizes import known_sizes
from fitroom.keras_model.loading.source import ModelSource, check_model, kind_of
from fitroom.keras_model.optimizers import check_optimizer
from fitroom.planning.cards import CardPlan, plan_for_cards
from fitroom.planning.devices import DevicesPlan, Need, budget_beside_distribution, plan_devices
from fitroom.planning.option import Option
from fitroom.planning.plan import plan
from fitroom.planning.request import ALLOWABLE, AUTO, KEEPABLE, PlanRequest, parse_knobs
from fitroom.planning.result import Plan
from fitroom.planning.target import choose_target
from fitroom.recipe import PRECISIONS, Recipe

Say = Callable[[str], None]

_AS_BYTES = (
    "The plan assumes that images are transferred to the card as uint8 and normalised there, as in `fitroom train`; as "
    "float32 a batch takes four times as much memory."
)


@dataclass(frozen=True, kw_only=True)
class PlanJob:
    """One model and batch, the memory to train in, and the knobs that may be changed."""

    model: str
    batch_size: int | str
    image_size: int | None
    classes: int | None
    gpu: str | None
    budget: str | None
    precision: str | None
    keep: tuple[str, ...]
    allow: tuple[str, ...]
    prefer: str
    optimizer: str | None
    probe: bool
    unsafe: bool
    sequence_length: int | None = None
    config: str | None = None
    """A JSON file with the arguments of a class or function."""

    def run(self, backend: str | None, say: Say) -> Plan:
        """The plan. `say` is called with what is being done."""
        backend = self._start(backend)
        room = choose_target(self.budget, self.gpu, backend)
        check_nvidia(room.card)
        if self.probe:
            _check_is_here(room.card)
        # How much is free on the card of this machine changes, so that plan is not cached.
        is_live = self.gpu is None and self.budget in (None, "live")
        key = None if is_live else self._key(backend, room.card.name, room.budget.bytes)
        if found := load_answer(key, Plan.from_dict):
            return found
        question = self._question(say)
        with known_sizes(sequence_length=self.sequence_length):
            found = plan(**question, budget=self.budget, gpu=self.gpu, probe=self.probe, say=say)
        if question["input_dtype"]:
            found = replace(found, notes=(*found.notes, _AS_BYTES))
        store_answer(key, found.to_dict())
        return found

    def run_for_devices(self, cards: Sequence[Card], backend: str | None, say: Say) -> DevicesPlan:
        """The plan for several cards that train together."""
        backend = self._start(backend)
        for card in cards:
            check_nvidia(card)
        check_batch(int(self.batch_size), len(cards))
        question = self._question(say)
        with known_sizes(sequence_length=self.sequence_length):
            try:
                return self._plan_devices(cards, backend, question, say)
            except NothingFitsError as error:
                if reason := why_not_sharded(backend, len(cards)):
                    raise _explained(error, reason) from None
                say(f"{error.message} Dividing weights and optimizer state among the cards")
                try:
                    return self._plan_devices(cards, backend, question, say, sharded=True)
                except NothingFitsError as still:
                    reason = "Dividing weights and optimizer state among the cards, as JAX can, was tried."
                    raise _explained(still, reason) from None

    def _plan_devices(
        self, cards: Sequence[Card], backend: str, question: dict[str, Any], say: Say, *, sharded: bool = False
    ) -> DevicesPlan:
        sharded_over = len(cards) if sharded else 1
        knobs = {
            "keep": parse_knobs("keep", self.keep, KEEPABLE),
            "allow": parse_knobs("allow", self.allow, ALLOWABLE),
        }

        def budget_of(card: Card) -> Budget:
            return budget_beside_distribution(self.budget, card, backend, question["model"], sharded=sharded)

        def make_plan(share: int, card: Card) -> Plan:
            from fitroom.keras_model.input_batch import symbolic_calls
            from fitroom.planning.planner import Planner

            say(f"planning {share} samples on {card.name}")
            request = PlanRequest(**question | knobs | {"batch_size": share}, sharded_over=sharded_over)
            with symbolic_calls():
                return Planner(request, choose_target(budget_of(card), card, backend), say).plan()

        def try_recipe(recipe: Recipe, share: int, card: Card) -> Need:
            from fitroom.planning.shared_recipe import try_recipe as try_on

            say(f"trying micro-batch {recipe.micro_batch or share} on {card.name}")
            model, size = question["model"], recipe.image_size
            model = question["rebuild"](size) if size else model
            optimizer = None if recipe.optimizer else question["optimizer"]
            return try_on(
                model,
                share,
                replace(recipe, image_size=None),
                card,
                budget_of(card),
                backend=backend,
                sharded_over=sharded_over,
                optimizer=optimizer,
            )

        return plan_devices(
            cards, int(self.batch_size), backend, make_plan, try_recipe, BATCH_STATISTICS[backend], sharded=sharded
        )

    def run_for_cards(self, backend: str | None, say: Say) -> list[CardPlan]:
        """The best plan for each card of the catalogue."""
        backend = self._start(backend)
        key = self._key(backend, "all")

        def read(kept: list[dict[str, Any]]) -> list[CardPlan]:
            return [_card_plan(each, backend) for each in kept]

        if found := load_answer(key, read):
            return found
        question = self._question(say)
        keep, allow = parse_knobs("keep", self.keep, KEEPABLE), parse_knobs("allow", self.allow, ALLOWABLE)
        with known_sizes(sequence_length=self.sequence_length):
            found = plan_for_cards(PlanRequest(**question | {"keep": keep, "allow": allow}), say=say)
        store_answer(key, [each.to_dict() for each in found])
        return found

    def _start(self, backend: str | None) -> str:
        """Choose the backend, and raise errors that can be found before anything slow is imported."""
        parse_knobs("keep", self.keep, KEEPABLE)
        parse_knobs("allow", self.allow, ALLOWABLE)
        if self.precision not in (None, AUTO, *PRECISIONS):
            known = f"known are: {AUTO}, {', '.join(PRECISIONS)}"
            raise UnknownNameError("precision", str(self.precision), (AUTO, *PRECISIONS), more=known)
        check_model(self.model, self.config)
        check_optimizer(self.optimizer)
        backend = choose_backend(backend)
        if self.probe:
            quieten(backend)
        else:
            quieten_for_estimates(backend)
        return backend

    def _key(self, backend: str, *room: object) -> str | None:
        """The cache key of the answer."""
        return key_of(asdict(self) | {"backend": backend, "room": room, "measure": self.probe, "command": "plan"})

    def _question(self, say: Say) -> dict[str, Any]:
        """What is to be trained, as `fitroom.plan` takes it."""
        from fitroom.keras_model.loading.source import load_resizable

        say(f"building {self.model}")
        source = ModelSource(
            text=self.model,
            image_size=self.image_size,
            sequence_length=self.sequence_length,
            classes=self.classes,
            unsafe=self.unsafe,
            config=self.config,
        )
        loaded = load_resizable(source)
        return {
            "model": loaded.model,
            "batch_size": self.batch_size,
            "precision": self.precision,
            "keep": self.keep,
            "allow": self.allow,
            "prefer": self.prefer,
            "optimizer": self.optimizer,
            # The normalisation of keras.applications models is known.
            "input_dtype": "uint8" if kind_of(self.model) == "name" else None,
            "rebuild": loaded.rebuild,
        }


def _card_plan(kept: dict[str, Any], backend: str) -> CardPlan:
    card = find_card(kept["gpu"])
    option = Option.from_dict(kept["option"]) if kept["option"] else None
    budget = Budget.of(card.name, backend=backend)
    return CardPlan(card=card, budget=budget, option=option, batch_size=kept["batch_size"])


def _explained(error: NothingFitsError, reason: str) -> NothingFitsError:
    return NothingFitsError(
        f"{error.message} {reason}", smallest_bytes=error.smallest_bytes, recipe=error.recipe, hint=error.hint
    )


def _check_is_here(card: Card) -> None:
    """Raise InputError unless the card is in this machine, where `--probe` times recipes."""
    here = [gpu.name for gpu in live_gpus()]
    if not here or find_card(here[0]).name != card.name:
        raise InputError(
            f"--probe times recipes on {card.name}. In this machine: {here[0] if here else 'no NVIDIA GPU'}.",
            hint="leave out --probe: the speed is then predicted from the card's datasheet",
        )
