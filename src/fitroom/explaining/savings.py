"""What each setting would save for the user's own model: one estimate each."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from fitroom.cards.catalogue import Card, find_card
from fitroom.errors import FitroomError, InputError, UnknownNameError, message_of
from fitroom.estimating.estimate import check_batch_size, choose_card, estimate
from fitroom.explaining.advice import KERNELS, MICRO_BATCH, PRECISION, REMAT, Setting
from fitroom.explaining.explanation import Explanation
from fitroom.recipe import Recipe
from fitroom.units import format_bytes

_MICRO_BATCHES = 4


def estimate_savings(
    explanation: Explanation,
    model: Any,
    batch_size: int,
    *,
    gpu: str | Card | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> Explanation:
    """Fill in what the step needs as it was, and what the settings for a step's size would save.

    Args:
        explanation: of the failure; returned as it is where it is not about a device's memory.
        model: the built model.
        batch_size: the samples of the step that failed.
        gpu: the card; None for the one that the log names.
        say: called with what is being done.
    """
    failure = explanation.failure
    if failure is None or failure.kind not in ("device_out_of_memory", "library_out_of_memory"):
        return explanation
    batch_size = check_batch_size(batch_size)
    card, _ = choose_card(gpu or _card_of(failure.card_name))
    say(f"estimating the step as it was, batch {batch_size}")
    try:
        whole = estimate(model, batch_size, gpu=card)
    except InputError:
        raise
    except FitroomError as error:
        note = f"What the settings save could not be estimated: {message_of(error)}"
        return replace(explanation, notes=(*explanation.notes, note))
    found = {
        setting: _estimated(setting, model, batch_size, card, whole.required_bytes, say)
        for setting in explanation.settings
        if setting in (REMAT, KERNELS, PRECISION, MICRO_BATCH)
    }
    note = (
        f"Estimated for {card.name}: the step with a batch of {batch_size} needs {format_bytes(whole.required_bytes)} "
        f"of allocator memory. `fitroom plan` combines settings."
    )
    return replace(
        explanation,
        required_bytes=whole.required_bytes,
        settings=tuple(found.get(setting, setting) for setting in explanation.settings),
        notes=(*explanation.notes, note),
    )


def _estimated(
    setting: Setting, model: Any, batch_size: int, card: Card, whole_bytes: int, say: Callable[[str], None]
) -> Setting:
    """The setting with what it needs and saves; as it was where it cannot be estimated."""
    recipe, how = _recipe_of(setting, batch_size, card)
    say(f"estimating: {setting.what}")
    try:
        needs = estimate(model, batch_size, recipe=recipe, gpu=card).required_bytes
    except FitroomError:
        return replace(setting, how=how)
    return replace(setting, how=how, needs_bytes=needs, saves_bytes=whole_bytes - needs)


def _recipe_of(setting: Setting, batch_size: int, card: Card) -> tuple[Recipe, str]:
    if setting == REMAT:
        return Recipe(remat="blocks"), setting.how
    if setting == KERNELS:
        return Recipe(kernels="fused"), setting.how
    if setting == PRECISION:
        # Cards before Ampere compute bfloat16 slowly or not at all.
        has_bfloat16 = card.compute_capability is None or card.compute_capability >= (8, 0)
        policy = "mixed_bfloat16" if has_bfloat16 else "mixed_float16"
        return Recipe(precision=policy), setting.how.replace("mixed_bfloat16", policy)
    micro_batch = max(1, -(-batch_size // _MICRO_BATCHES))
    return Recipe(micro_batch=micro_batch), f"fitroom run --micro-batch {micro_batch} train.py"


def _card_of(name: str | None) -> Card | None:
    try:
        return find_card(name) if name else None
    except UnknownNameError:
        return None
