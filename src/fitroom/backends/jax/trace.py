"""The memory of a Keras step on JAX, found without running it."""

import importlib.metadata
from typing import Any

from fitroom.backends.jax.compiler import StepCompiler, compiler_version
from fitroom.backends.jax.measure import measured_timeline
from fitroom.backends.jax.step import JaxStep, predict_step, training_step
from fitroom.backends.prepared import prepared
from fitroom.estimating.cards import Card
from fitroom.estimating.step import StepRequest, TracedStep
from fitroom.units import format_bytes

DEFAULT_POOL_PERCENT = 75
"""What JAX takes of a card for its allocator unless `XLA_CLIENT_MEM_FRACTION` says otherwise."""


def default_limit_bytes(card: Card) -> int:
    """The allocator's limit on a card, as JAX sets it by default."""
    return card.memory_bytes * DEFAULT_POOL_PERCENT // 100


def trace_step(model: Any, request: StepRequest) -> TracedStep:
    """The step that Keras would jit, as XLA lays it out for the card."""
    limit_bytes = request.limit_bytes or default_limit_bytes(request.card)
    with prepared(model, request) as ready:
        step = training_step(ready) if request.training else predict_step(ready)
        timeline = StepCompiler(step, request.card).timeline(limit_bytes)
    notes = [*ready.notes, _ahead_note(step)]
    if request.measure:
        predicted_bytes = timeline.peak_bytes
        timeline = measured_timeline(step, limit_bytes)
        notes.append(_difference_note(predicted_bytes, timeline.peak_bytes))
    return TracedStep(
        timeline=timeline,
        required_bytes=timeline.peak_bytes + step.batch_bytes,
        limit_bytes=limit_bytes,
        method="measured" if request.measure else "compiled",
        typical_error=None,
        precision=ready.precision,
        versions=_versions(),
        notes=tuple(notes),
    )


def _ahead_note(step: JaxStep) -> str:
    return (
        f"Keras copies the next batch to the card while this one is trained: {format_bytes(step.batch_bytes)} more, "
        "counted in what is needed, not in the peak of the step."
    )


def _difference_note(predicted_bytes: int, measured_bytes: int) -> str:
    difference = 100 * (predicted_bytes - measured_bytes) / measured_bytes
    return f"Predicted without running it: {format_bytes(predicted_bytes)}, {difference:+.2f} % of what was measured."


def _versions() -> dict[str, str]:
    names = ("keras", "jax", "jaxlib")
    return {name: importlib.metadata.version(name) for name in names} | {"compiler": compiler_version() or "none"}
