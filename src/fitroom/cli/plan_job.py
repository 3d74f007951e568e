"""What `fitroom plan` was asked for, carried out: for one card and budget, or for every card of the catalogue."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

from fitroom.backends.choose import choose_backend
from fitroom.backends.quiet import quieten, quieten_for_estimates
from fitroom.budget import Budget
from fitroom.cards.catalogue import Card, check_nvidia, find_card
from fitroom.cards.nvml import live_gpus
from fitroom.cli.remembered import key_of, recall, remember
from fitroom.errors import InputError, UnknownNameError
from fitroom.input_sizes import known_sizes
from fitroom.keras_model.loading.source import ModelSource, check_model, kind_of
from fitroom.keras_model.optimizers import check_optimizer
from fitroom.planning.cards import CardPlan, plan_for_cards
from fitroom.planning.option import Option
from fitroom.planning.plan import plan
from fitroom.planning.planner import AUTO, Question
from fitroom.planning.result import Plan
from fitroom.planning.room import room_of
from fitroom.planning.variant import ALLOWABLE, KEEPABLE, knobs_of
from fitroom.recipe import PRECISIONS

Say = Callable[[str], None]

_AS_BYTES = (
    "Pictures are planned to go to the card as uint8 and to be normalised there, as `fitroom train` has it; as float32 "
    "a batch takes four times as much."
)


@dataclass(frozen=True, kw_only=True)
class PlanJob:
    """One model, one batch, what it may be trained in and what may be turned for it."""

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

    def run(self, backend: str | None, say: Say) -> Plan:
        """The plan. `say` hears what is under way."""
        backend = self._start(backend)
        room = room_of(self.budget, self.gpu, backend)
        check_nvidia(room.card)
        if self.probe:
            _check_is_here(room.card)
        # What is free on the card in this machine is another tomorrow.
        is_live = self.gpu is None and self.budget in (None, "live")
        key = None if is_live else self._key(backend, room.card.name, room.budget.bytes)
        if found := recall(key, Plan.from_dict):
            return found
        question = self._question(say)
        with known_sizes(sequence_length=self.sequence_length):
            found = plan(**question, budget=self.budget, gpu=self.gpu, probe=self.probe, say=say)
        if question["input_dtype"]:
            found = replace(found, notes=(*found.notes, _AS_BYTES))
        remember(key, found.to_dict())
        return found

    def run_for_cards(self, backend: str | None, say: Say) -> list[CardPlan]:
        """What each card of the catalogue would do."""
        backend = self._start(backend)
        key = self._key(backend, "all")

        def read(kept: list[dict[str, Any]]) -> list[CardPlan]:
            return [_card_plan(each, backend) for each in kept]

        if found := recall(key, read):
            return found
        question = self._question(say)
        keep, allow = knobs_of("keep", self.keep, KEEPABLE), knobs_of("allow", self.allow, ALLOWABLE)
        with known_sizes(sequence_length=self.sequence_length):
            found = plan_for_cards(Question(**question | {"keep": keep, "allow": allow}), say=say)
        remember(key, [each.to_dict() for each in found])
        return found

    def _start(self, backend: str | None) -> str:
        """Settle the backend, and tell what can be told to be wrong before anything slow is imported."""
        knobs_of("keep", self.keep, KEEPABLE)
        knobs_of("allow", self.allow, ALLOWABLE)
        if self.precision not in (None, AUTO, *PRECISIONS):
            known = f"known are: {AUTO}, {', '.join(PRECISIONS)}"
            raise UnknownNameError("precision", str(self.precision), (AUTO, *PRECISIONS), more=known)
        check_model(self.model)
        check_optimizer(self.optimizer)
        backend = choose_backend(backend)
        if self.probe:
            quieten(backend)
        else:
            quieten_for_estimates(backend)
        return backend

    def _key(self, backend: str, *room: object) -> str | None:
        """What the answer is remembered under."""
        return key_of(asdict(self) | {"backend": backend, "room": room, "measure": self.probe, "command": "plan"})

    def _question(self, say: Say) -> dict[str, Any]:
        """What is to be trained, as `fitroom.plan` takes it."""
        from fitroom.keras_model.loading.source import load_resizable

        say(f"building {self.model}")
        source = ModelSource(text=self.model, image_size=self.image_size, classes=self.classes, unsafe=self.unsafe)
        loaded = load_resizable(source)
        return {
            "model": loaded.model,
            "batch_size": self.batch_size,
            "precision": self.precision,
            "keep": self.keep,
            "allow": self.allow,
            "prefer": self.prefer,
            "optimizer": self.optimizer,
            # Of ready-made models it is known how they want their pictures.
            "input_dtype": "uint8" if kind_of(self.model) == "name" else None,
            "rebuild": loaded.rebuild,
        }


def _card_plan(kept: dict[str, Any], backend: str) -> CardPlan:
    card = find_card(kept["gpu"])
    option = Option.from_dict(kept["option"]) if kept["option"] else None
    budget = Budget.of(card.name, backend=backend)
    return CardPlan(card=card, budget=budget, option=option, batch_size=kept["batch_size"])


def _check_is_here(card: Card) -> None:
    """Recipes can be timed on the card in this machine alone."""
    here = [gpu.name for gpu in live_gpus()]
    if not here or find_card(here[0]).name != card.name:
        raise InputError(
            f"--probe times recipes on {card.name}. In this machine: {here[0] if here else 'no NVIDIA GPU'}.",
            hint="leave --probe out: speed is then predicted from the card's datasheet",
        )
