"""How a batch is trained: whole, or in the largest micro-batches that the estimate says fit."""

from dataclasses import dataclass
from typing import Any

from fitroom.classify.machine import Machine, Say
from fitroom.classify.micro_batch import largest_cut
from fitroom.errors import FitroomError
from fitroom.estimating.estimate import estimate
from fitroom.estimating.result import Estimate
from fitroom.recipe import Recipe
from fitroom.units import format_bytes

_PART_TO_FILL = 0.97
"""Of the budget. Validation and saving leave small blocks between the large ones, and running out costs a compile."""


@dataclass(frozen=True, kw_only=True)
class Choice:
    """A recipe for `fit`, the estimate behind it, and why, in whole sentences."""

    micro_batch: int | None
    estimate: Estimate | None
    why: str


def choose_micro_batch(
    model: Any, machine: Machine, *, batch_size: int, asked: int | None, jit: bool | None, say: Say
) -> Choice:
    """For a compiled model."""
    if machine.budget is None:
        whole = f"{asked} samples at once, as asked for" if asked else "whole batches"
        return Choice(
            micro_batch=asked,
            estimate=None,
            why=f"No estimate is needed, since memory has no limit on {machine.where}: training begins with {whole}.",
        )
    budget = f"{format_bytes(machine.budget.bytes)} ({machine.budget.source})"
    limit_bytes = int(_PART_TO_FILL * machine.budget.bytes)

    def at(samples: int) -> Estimate:
        say(f"estimating a step with {samples} of {batch_size} samples at once")
        cut = samples if samples < batch_size else None
        recipe = Recipe(micro_batch=cut, jit=_jit_here(model, machine, jit), input_dtype="uint8")
        return estimate(model, batch_size, recipe=recipe, gpu=machine.card, limit=limit_bytes)

    try:
        if asked:
            found = at(asked)
            verdict = "which fits" if found.fits else "which does not fit: fit will go on with less"
            why = f"{asked} samples at once, as asked for: {_takes(found)} of {budget}, {verdict}."
            return Choice(micro_batch=asked, estimate=found, why=why)
        cut = largest_cut(batch_size, at)
    except FitroomError as error:
        why = (
            f"No estimate could be made: {error.message} Training begins with {asked or 'whole batches'} and less "
            + ("where memory runs out.")
        )
        return Choice(micro_batch=asked, estimate=None, why=why)
    if not cut.estimate.fits:
        why = (
            f"Not even {cut.samples} samples at once fit: {_takes(cut.estimate)} of {budget}. It is tried all the same."
        )
    elif cut.samples == batch_size:
        return Choice(
            micro_batch=None,
            estimate=cut.estimate,
            why=f"The whole batch of {batch_size} fits: {_takes(cut.estimate)} of {budget}.",
        )
    else:
        why = (
            f"{cut.samples} samples at once is the most that fits: {_takes(cut.estimate)} of {budget}. "
            f"The batch stays at {batch_size}, in {-(-batch_size // cut.samples)} parts."
        )
    return Choice(micro_batch=cut.samples, estimate=cut.estimate, why=why)


def _jit_here(model: Any, machine: Machine, asked: bool | None) -> bool | None:
    """Keras leaves XLA out where TensorFlow has no card; an estimate is for a card, and would have it."""
    return bool(model.jit_compile) if machine.backend.name == "tensorflow" else asked


def _takes(found: Estimate) -> str:
    return f"{format_bytes(found.required_bytes)} needed"
