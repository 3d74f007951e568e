"""The memory of a Keras step on TensorFlow, found without running it."""

import importlib.metadata
from typing import TYPE_CHECKING, Any

from fitroom.backends.tensorflow.jit import has_card, is_jitted_on_card
from fitroom.backends.tensorflow.pool import default_limit_bytes
from fitroom.backends.tensorflow.trace.borrowed_variables import borrow_values
from fitroom.backends.tensorflow.trace.graph.estimate import GraphEstimate, graph_timeline
from fitroom.backends.tensorflow.trace.measure import (
    borrow_zeros,
    check_card,
    measure_micro_batches_peak_bytes,
    measure_peak_bytes,
)
from fitroom.backends.tensorflow.trace.micro_batches import (
    MicroBatchStep,
    graph_timeline_of_micro_batches,
    jitted_timeline_of_micro_batches,
    trace_micro_batch_step,
    trace_whole_step,
)
from fitroom.backends.tensorflow.trace.step import TensorFlowStep, predict_step, training_step
from fitroom.cards.catalogue import check_nvidia
from fitroom.keras_model.jit_choice import jit_choice
from fitroom.keras_model.layers import cudnn_loops_note
from fitroom.keras_model.measured_kinds import with_room_for_unmeasured
from fitroom.keras_model.prepared import PreparedModel, prepare_model
from fitroom.memory.step import StepRequest, TracedStep

if TYPE_CHECKING:
    from fitroom.backends.tensorflow.trace.jitted.estimate import JittedEstimate

_ARRAYS_NOTE = (
    "`fit` on NumPy arrays copies all of them to the card, and their size comes on top; a `tf.data.Dataset` stays "
    "with the host."
)

_AUTO_NOTE = "Jitted, as Keras does on a card by default; --no-jit (`Recipe(jit=False)`) is the step without XLA."
_FORGOTTEN_NOTE = (
    "Jitted, as Keras does on a card by default. If it was compiled with jit_compile=False, say so with --no-jit "
    "(`Recipe(jit=False)`), or import fitroom before `compile`: Keras does not keep that on a machine without a card."
)
_FUSED_NOTE = "Fused kernels of TensorFlow were measured on a card in float32 only."


def trace_step(model: Any, request: StepRequest) -> TracedStep:
    """The step that Keras would run, jitted or as a graph, laid out for the card."""
    check_nvidia(request.card)
    limit_bytes = request.limit_bytes or default_limit_bytes(request.card)
    if request.measure:
        check_card(request.card)
    jit_note = _jit_note(model, request)  # before the model is lent what it is compiled with
    with prepare_model(model, request, borrow_zeros if request.measure else borrow_values) as ready:
        step = _step(ready, request)
        jit = _is_jitted(ready.model, request)
        found = _find(step, request, limit_bytes, jit=jit)
        notes = jit_note if jit else cudnn_loops_note(ready.model)
        is_unmeasured = request.recipe.kernels == "fused" and ready.precision != "float32"
        notes += (_FUSED_NOTE,) if is_unmeasured else ()
        measured_bytes = _measured(step, ready.model, request, jit=jit) if request.measure else None
    traced = TracedStep(
        timeline=found.timeline,
        required_bytes=found.required_bytes,
        limit_bytes=limit_bytes,
        method=found.method,
        typical_error=found.typical_error,
        precision=ready.precision,
        versions={name: _version(name) for name in ("keras", "tensorflow")} | dict(found.versions),
        notes=(*ready.notes, *found.notes, *notes, *((_ARRAYS_NOTE,) if request.training else ())),
    )
    if measured_bytes is not None:
        return traced.as_measured(measured_bytes)
    return with_room_for_unmeasured(traced, model, "tensorflow", jit=jit)


def _step(ready: PreparedModel, request: StepRequest) -> TensorFlowStep | MicroBatchStep:
    if not request.training:
        return predict_step(ready)
    if request.micro_batch_sizes:
        return trace_micro_batch_step(ready)
    return trace_whole_step(ready) if request.is_step_of_fitroom else training_step(ready)


def _find(
    step: TensorFlowStep | MicroBatchStep, request: StepRequest, limit_bytes: int, *, jit: bool
) -> "GraphEstimate | JittedEstimate":
    if isinstance(step, MicroBatchStep):
        if jit:
            return jitted_timeline_of_micro_batches(step, request, limit_bytes)
        return graph_timeline_of_micro_batches(step, request)
    if not jit:
        return graph_timeline(step, request)
    from fitroom.backends.tensorflow.trace.jitted.estimate import jitted_timeline

    return jitted_timeline(step, request, limit_bytes)


def _measured(step: TensorFlowStep | MicroBatchStep, model: Any, request: StepRequest, *, jit: bool) -> int:
    if isinstance(step, MicroBatchStep):
        return measure_micro_batches_peak_bytes(step, model, request, jit=jit)
    return measure_peak_bytes(step, jit=jit)


def _is_jitted(model: Any, request: StepRequest) -> bool:
    return is_jitted_on_card(model) if request.recipe.jit is None else request.recipe.jit


def _jit_note(model: Any, request: StepRequest) -> tuple[str, ...]:
    choice = jit_choice(model)
    if request.recipe.jit is not None or isinstance(choice, bool) or has_card():
        return ()
    return (_FORGOTTEN_NOTE if choice is None else _AUTO_NOTE,)


def _version(name: str) -> str:
    for package in (name, f"{name}-cpu"):
        try:
            return importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return "unknown"
