"""The memory of a Keras step on JAX, found without running it."""

import importlib.metadata
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

from fitroom.activity import activity
from fitroom.backends.jax.jit import fitroom_jits, keras_jits
from fitroom.backends.jax.pool import default_limit_bytes
from fitroom.backends.jax.trace.card_attention import decide_attention_for
from fitroom.backends.jax.trace.compiler import COMPILER_PACKAGES, StepCompiler, compiler_version
from fitroom.backends.jax.trace.jaxpr.estimate import TYPICAL_ERROR as TRACED_ERROR
from fitroom.backends.jax.trace.jaxpr.estimate import timeline_of_jaxpr
from fitroom.backends.jax.trace.measure import measure_timeline
from fitroom.backends.jax.trace.step import JaxStep, predict_step, training_step
from fitroom.backends.jax.trace.traceable import make_traceable
from fitroom.cards.catalogue import Card
from fitroom.keras_model.layers import can_be_jitted
from fitroom.keras_model.measured_kinds import with_room_for_unmeasured
from fitroom.keras_model.prepared import prepare_model
from fitroom.memory.estimate import Method
from fitroom.memory.step import PendingStep, StepRequest, TracedStep, difference_note
from fitroom.memory.timeline import Timeline

BATCHES_AHEAD = 2
"""How many further batches may be on the card while one is trained on, by Keras or by us: the next one is prefetched,
and the step before is not waited for. Measured on an H200: one beside a slow step, two beside a fast one."""

GAPS_OF_KERAS = 1
"""Room for as many batches is lost in Keras's own `fit`: it transfers the first two before it makes the optimizer's
slots, which come to lie behind them, and small arrays settle in one of the places that the two leave. On an H200 a step
of MobileNetV3Large ran out of memory for it."""

MARGIN_SHARE = 0.02
"""A share of the peak for what only the card decides, such as workspaces of the kernels it chooses, and gaps between
arrays, as XLA takes all its memory in one piece. Of 29 peaks of the benchmark one was further off. Without it one step
of 29 ran out of memory, for 0.2 % of its peak."""

AUTOTUNING_BYTES = 224 * 2**20
"""Room beside weights, slots and batches for XLA to try kernels in before the first step: a workspace of 32 MiB, and
for each operand a copy with 16 MiB of guards around it. On an H200, 7 of 24 steps of 60 to 125 MiB ran out of memory in
that, under caps that were enough for the step."""

_AHEAD_NOTE = (
    f"Up to {BATCHES_AHEAD} further batches are copied to the card while one is computed: "
    "they are counted in what is needed, not in the peak of the step."
)

COMPILED_ERROR = 0.0003
"""The median error of benchmarks/results/predicted.jsonl: a compiler of the version that the card runs."""

OTHER_COMPILER_ERROR = 0.001
"""The median error of benchmarks/results/predicted_jax_0.10.2.jsonl: a compiler of another version."""


@dataclass(frozen=True, kw_only=True)
class _Found:
    """A step's memory and how it was found."""

    timeline: Timeline
    method: Method
    typical_error: float | None
    notes: tuple[str, ...] = ()
    predicted: "_Found | None" = None
    """What was predicted for a step that was measured."""


@dataclass(frozen=True, kw_only=True)
class _Pending:
    """What is found once the compiler is done."""

    result: Callable[[], _Found]
    cancel: Callable[[], None]

    @classmethod
    def known(cls, **found: Any) -> "_Pending":
        """What is found already."""
        return cls(result=lambda: _Found(**found), cancel=lambda: None)


def trace_step(model: Any, request: StepRequest) -> TracedStep:
    """The memory of the step that Keras or `fitroom.fit` would run, as XLA lays it out for the card."""
    return begin_trace(model, request).result()


def begin_trace(model: Any, request: StepRequest) -> PendingStep:
    """Trace the step, and have it compiled by another process while this one goes on."""
    limit_bytes = request.limit_bytes or default_limit_bytes(request.card)
    on_card = nullcontext() if request.measure else decide_attention_for(request.card)
    with prepare_model(model, request) as ready, make_traceable(ready.model), on_card:
        with activity("tracing the step"):
            step = training_step(ready) if request.training else predict_step(ready)
        jit = _is_jitted(ready.model, request)
        pending = _begin(step, request, limit_bytes, jit=jit)
        further_bytes = _further_batches(ready.model, request) * step.batch_bytes // request.devices

    def result() -> TracedStep:
        found = pending.result()
        traced = TracedStep(
            timeline=found.timeline,
            required_bytes=_required_bytes(found, tries_kernels=jit) + further_bytes,
            limit_bytes=limit_bytes,
            method=found.method,
            typical_error=found.typical_error,
            precision=ready.precision,
            versions=_versions(),
            depends_on_limit=found.method == "compiled",
            notes=(*ready.notes, *found.notes, _AHEAD_NOTE),
            predicted_bytes=found.predicted.timeline.peak_bytes if found.predicted else None,
            predicted_with=found.predicted.method if found.predicted else None,
        )
        return with_room_for_unmeasured(traced, model, "jax", jit=jit)

    return PendingStep(result=result, cancel=pending.cancel)


def _required_bytes(found: _Found, *, tries_kernels: bool) -> int:
    """What the step needs, or what trying its kernels needs, whichever is more."""
    peak_bytes = found.timeline.peak_bytes
    step_bytes = peak_bytes + int(MARGIN_SHARE * peak_bytes)
    if not tries_kernels:
        return step_bytes
    resting_bytes = sum(found.timeline.by_kind().get(kind, 0) for kind in ("weights", "optimizer", "input"))
    return max(step_bytes, resting_bytes + AUTOTUNING_BYTES)


def _is_jitted(model: Any, request: StepRequest) -> bool:
    """Whether the step is compiled."""
    if request.recipe.jit is not None:
        return request.recipe.jit
    if not request.training and not model.compiled:
        return can_be_jitted(model)
    return fitroom_jits(model) if request.is_step_of_fitroom else keras_jits(model)


def _further_batches(model: Any, request: StepRequest) -> int:
    """How many batches beside the one that is trained on need room."""
    may_be_keras = request.training and not request.is_step_of_fitroom
    leaves_gaps = may_be_keras and any(variable.shape for variable in model.optimizer.variables)
    return BATCHES_AHEAD + GAPS_OF_KERAS * leaves_gaps


def _begin(step: JaxStep, request: StepRequest, limit_bytes: int, *, jit: bool) -> _Pending:
    if not jit:
        return _Pending.known(
            timeline=timeline_of_jaxpr(step, fused=False),
            method="traced",
            typical_error=None,
            notes=("Approximate: without jit nothing is fused, and JAX holds what it made until backward is done.",),
        )
    pending = _predict(step, request.card, limit_bytes, devices=request.devices, shard_weights=request.shard_weights)
    if not request.measure:
        return pending
    timeline, predicted = measure_timeline(step, request.card, limit_bytes), pending.result()
    difference = difference_note(predicted.timeline.peak_bytes, timeline.peak_bytes)
    return _Pending.known(
        timeline=timeline, method="measured", typical_error=0.0, notes=(difference,), predicted=predicted
    )


def _predict(step: JaxStep, card: Card, limit_bytes: int, *, devices: int, shard_weights: bool) -> _Pending:
    if compiler_version() is None:
        return _Pending.known(
            timeline=timeline_of_jaxpr(step, fused=True),
            method="traced",
            typical_error=TRACED_ERROR,
            notes=(f"Without XLA's GPU compiler this is approximate; exact with: {_install_compiler()}",),
        )
    compiler = StepCompiler(step, card, devices=devices, shard_weights=shard_weights)
    pending = compiler.begin(limit_bytes)

    def result() -> _Found:
        timeline, versions_note = pending.result(), _versions_note()
        return _Found(
            timeline=timeline,
            method="compiled",
            typical_error=OTHER_COMPILER_ERROR if versions_note else COMPILED_ERROR,
            notes=(*versions_note, *_recomputing_note(timeline), *_attention_note(compiler)),
        )

    return _Pending(result=result, cancel=pending.cancel)


def _versions_note() -> tuple[str, ...]:
    """A note where the compiler is not the one that the installed JAX would use on a card; else empty."""
    compiler, jaxlib = (compiler_version() or "").split()[-1], importlib.metadata.version("jaxlib")
    if compiler == jaxlib:
        return ()
    return (f"The compiler is {compiler} and JAX {jaxlib}; more exact with: {_install_compiler()}",)


def _install_compiler() -> str:
    return f"pip install {COMPILER_PACKAGES[0]}=={importlib.metadata.version('jaxlib')}"


def _recomputing_note(timeline: Timeline) -> tuple[str, ...]:
    recomputed = sum(".remat" in moment.name for moment in timeline.moments)
    if not recomputed:
        return ()
    return (f"To come under the limit XLA recomputes by itself ({recomputed} operations): less memory, more time.",)


def _attention_note(compiler: StepCompiler) -> tuple[str, ...]:
    if not compiler.uses_fused_attention:
        return ()
    return (
        "Attention is computed by cuDNN's fused operation, as on the card; its scratch memory is counted by a rule "
        "that was not measured.",
    )


def _versions() -> dict[str, str]:
    names = ("keras", "jax", "jaxlib")
    return {name: importlib.metadata.version(name) for name in names} | {"compiler": compiler_version() or "none"}
