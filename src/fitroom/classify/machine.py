"""Starting the backend on its device, with a limit on its memory."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from fitroom.backends.choose import choose_backend, current_backend, limit_memory
from fitroom.backends.contract import Backend, Device
from fitroom.backends.quiet import hold_stderr, quieten
from fitroom.budget import Budget
from fitroom.cards.catalogue import Card, find_card
from fitroom.cards.nvml import LiveGpu, live_gpus
from fitroom.checks.device_note import device_note
from fitroom.environment import cache_folder
from fitroom.errors import FitroomError, UnknownNameError
from fitroom.report.shared.words import format_backend
from fitroom.units import format_bytes

Say = Callable[[str], None]

_SLACK_BYTES = 2**20
"""Limits are set as fractions of a card or in whole mebibytes, so they are met only roughly."""


@dataclass(frozen=True, kw_only=True)
class Machine:
    """The backend, device and memory that a training has."""

    backend: Backend
    device: Device
    gpu: LiveGpu | None
    """The card, if training runs on one that the driver reports."""

    budget: Budget | None
    """None where memory has no limit, as on a plain CPU."""

    card: Card | None
    """The card to estimate for; None for the default."""

    @property
    def device_name(self) -> str:
        """The device's name for people."""
        return "CPU" if self.device.kind == "cpu" else self.device.description or self.device.name

    @property
    def where(self) -> str:
        """The device's name within a sentence."""
        return "the CPU" if self.device.kind == "cpu" else f"{self.device_name} ({self.device.name})"


def start_machine(backend: str | None, *, budget: str | None, gpu: str | None, say: Say) -> Machine:
    """Start a backend on its device with a limit on its memory. To be called before Keras is imported."""
    name = choose_backend(backend)
    quieten(name)
    gpus = live_gpus()
    asked = _asked_budget(budget, gpu, gpus, name)
    free = None
    with suppress(FitroomError):  # no card, or one that is full
        free = Budget.of(None, backend=name)
    with hold_stderr() as held:
        why_not = limit_memory(name, asked.bytes) if asked else None
        loaded = current_backend()
        loaded.fail_at_once()
        if folder := cache_folder():
            loaded.keep_programs(folder / "programs")
        device = loaded.devices()[0]
        limit_bytes = loaded.read_memory(device).limit_bytes
    on_card = gpus[0] if gpus and device.kind == "gpu" else None
    machine = Machine(
        backend=loaded,
        device=device,
        gpu=on_card,
        budget=asked or _live_budget(device, limit_bytes, free if on_card else None),
        card=_card(gpu or (on_card.name if on_card else None)),
    )
    say(f"training on {machine.where} with {format_backend(name)}")
    if note := device_note(loaded):
        said = f" Its message: {held.text.splitlines()[-1]}" if held.text else ""
        say(f"warning: {note}{said}")
    if asked and (why_not or (limit_bytes or 0) > asked.bytes + _SLACK_BYTES):
        why_not = why_not or f"{format_backend(name)} has a limit of {format_bytes(limit_bytes)} all the same"
        say(f"the budget of {format_bytes(asked.bytes)} is used for the plan, but not enforced: {why_not}")
    return machine


def _asked_budget(budget: str | None, gpu: str | None, gpus: tuple[LiveGpu, ...], backend: str) -> Budget | None:
    card = find_card(gpu) if gpu is not None else None
    if budget is not None:
        return Budget.of(budget, backend=backend)
    if card is None or (gpus and _card(gpus[0].name) == card):
        return None
    return Budget.of(gpu, backend=backend)


def _live_budget(device: Device, limit_bytes: int | None, free: Budget | None) -> Budget | None:
    """The allocator's limit or what is free on the card, whichever is less."""
    limit = Budget(bytes=limit_bytes, source=f"the allocator's limit on {device.name}") if limit_bytes else None
    return min((one for one in (limit, free) if one), key=lambda one: one.bytes, default=None)


def _card(name: str | None) -> Card | None:
    try:
        return find_card(name) if name else None
    except UnknownNameError:
        return None
