"""A budget: the bytes one device can give to training."""

from dataclasses import dataclass

from fitroom.display import TextDisplay
from fitroom.errors import InputError, UnknownNameError
from fitroom.units import format_bytes, parse_bytes


@dataclass(frozen=True, kw_only=True)
class Budget(TextDisplay):
    """The bytes one device can give to training, and where the figure is from."""

    bytes: int
    """The limit for the framework's allocator."""

    source: str
    """How the figure was found, for people."""

    @classmethod
    def of(cls, value: "Budget | int | str | None" = None, *, backend: str | None = None) -> "Budget":
        """Make a budget from a size, a card's name or the live card.

        A number is bytes and "12GiB" a size: the allocator's limit as it stands. A card's name ("RTX 3060") is
        the card less what context and libraries take, which depends on `backend`. "live" or None is the first
        card in this machine, less what others use of it.

        >>> Budget.of("12GiB").bytes
        12884901888
        """
        if isinstance(value, Budget):
            return value
        if value is None or (isinstance(value, str) and value.strip().lower() == "live"):
            return _of_live_card(backend)
        if isinstance(value, bool) or not isinstance(value, int | str):
            raise _not_a_budget(value)
        if isinstance(value, int):
            return cls(bytes=parse_bytes(value), source="given")
        return _of_text(value, backend)


def _of_text(text: str, backend: str | None) -> Budget:
    from fitroom.cards.catalogue import find_card

    # Cards first: "3060" is a card people have, and no one trains in 3,060 bytes.
    try:
        card = find_card(text)
    except UnknownNameError as unknown:
        try:
            return Budget(bytes=parse_bytes(text), source="given")
        except InputError:
            raise _not_a_budget(text, unknown.suggestions) from None
    from fitroom.cards.overhead import context_bytes

    return _less_overhead(card.name, card.memory_bytes, context_bytes(card, backend))


def _of_live_card(backend: str | None) -> Budget:
    from fitroom.cards.catalogue import Card, find_card
    from fitroom.cards.nvml import live_gpus
    from fitroom.cards.overhead import context_bytes

    gpus = live_gpus()
    if not gpus:
        raise InputError(
            "No NVIDIA GPU was found in this machine, or `CUDA_VISIBLE_DEVICES` hides it.",
            hint="give a size such as '12GiB' or a card such as 'RTX 3060'; `fitroom gpus` lists them",
        )
    card: Card | None
    try:
        card = find_card(gpus[0].name)
    except UnknownNameError:
        card = None
    return _less_overhead(f"{gpus[0].name}, free now", gpus[0].free_bytes, context_bytes(card, backend))


def _less_overhead(name: str, memory_bytes: int, overhead_bytes: int) -> Budget:
    if memory_bytes <= overhead_bytes:
        raise InputError(
            f"{name}: {format_bytes(memory_bytes)} is less than context and libraries take "
            f"({format_bytes(overhead_bytes)}).",
            hint="end what else uses the card, or pick another",
        )
    source = f"{name}: {format_bytes(memory_bytes)} less {format_bytes(overhead_bytes)} for context and libraries"
    return Budget(bytes=memory_bytes - overhead_bytes, source=source)


def _not_a_budget(value: object, suggestions: list[str] | None = None) -> InputError:
    nearest = f" Did you mean {' or '.join(repr(name) for name in suggestions)}?" if suggestions else ""
    return InputError(
        f"A budget must be a size or the name of a card. Received: {value!r}.",
        hint=f"write a size as '12GiB' or a card as 'RTX 3060'; `fitroom gpus` lists all cards.{nearest}",
    )
