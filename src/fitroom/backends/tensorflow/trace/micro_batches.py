"""The step of a batch in micro-batches, without running it: one micro-batch, the final update, and their memory."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import tensorflow as tf
from tensorflow.python.ops.resource_variable_ops import UninitializedVariable  # the one kind without a value

from fitroom.backends.tensorflow.trace.graph.estimate import GraphEstimate, graph_timeline
from fitroom.backends.tensorflow.trace.step import (
    StepVariable,
    TensorFlowStep,
    computation_of,
    trace_function,
    training_step,
    try_targets,
)
from fitroom.backends.tensorflow.train.micro_batches import StepFunctions
from fitroom.backends.tensorflow.train.statistics import StatisticsChange
from fitroom.backends.tensorflow.train.stepper import SMALL_BYTES
from fitroom.keras_model.layers import owners_of_variables
from fitroom.keras_model.losses import is_from_keras
from fitroom.keras_model.objective import Objective
from fitroom.keras_model.prepared import PreparedModel
from fitroom.memory.allocators.best_fit import round_up
from fitroom.memory.step import StepRequest
from fitroom.memory.timeline import PHASES, Buffer, Moment, Phase, Timeline
from fitroom.remat.shapes import num_bytes

if TYPE_CHECKING:
    from fitroom.backends.tensorflow.trace.jitted.estimate import JittedEstimate


_SHARE = 0.5
"""Of a micro-batch in the batch. Any will do that no compiler can leave out."""


@dataclass(frozen=True, kw_only=True)
class MicroBatchStep:
    """The programs of a batch in micro-batches. Both have the sums of gradients, as variables of kind "gradients"."""

    micro_batch: TensorFlowStep
    update: TensorFlowStep


def trace_micro_batch_step(prepared: PreparedModel) -> MicroBatchStep:
    """The step of `fitroom.fit` in micro-batches of the prepared size, with the first targets that the loss takes."""
    model = prepared.model
    objective = Objective(model)
    objective.check_can_cut("train_step")
    functions = StepFunctions(model, objective)
    sums = _sums(model)

    def given() -> dict[str, Any]:
        return {
            "gradients": [each.variable.read_value() for each in sums],
            "statistics": StatisticsChange(model).zeros(),
            "losses": tf.zeros((1 + objective.num_losses,)),
        }

    def add_micro_batch(data: Any) -> dict[str, Any]:
        shares = tf.fill((objective.num_losses,), _SHARE)
        return functions.add_micro_batch(data, shares, tf.constant(_SHARE), given())

    def update(data: Any) -> dict[str, Any]:
        return functions.finish(given(), tf.constant(1))

    computed = computation_of(prepared).of_step(add_micro_batch, prepared.num_samples)

    def make(data: Any) -> MicroBatchStep:
        steps = trace_function(model, computed, data), trace_function(model, update, ())
        first, last = (replace(step, variables=(*step.variables, *sums)) for step in steps)
        return MicroBatchStep(
            micro_batch=replace(first, returns_gradients=True, prefetches_next=True),
            update=replace(last, holds_old=True),
        )

    return try_targets(prepared, make, with_loss=True)


def trace_whole_step(prepared: PreparedModel) -> MicroBatchStep | TensorFlowStep:
    """The step of `fitroom.fit` on a whole batch: a program for the gradients and one for the update, unless the model
    is so small, or its own, that Keras's step is taken as it is."""
    model = prepared.model
    weights = [*model.trainable_variables, *model.optimizer.variables]
    changed_bytes = sum(num_bytes(each.shape, each.dtype) for each in weights)
    if changed_bytes <= SMALL_BYTES or not is_from_keras(type(model).train_step):
        return training_step(prepared)
    functions = StepFunctions(model, Objective(model))
    gradients = computation_of(prepared).of_step(functions.gradients, prepared.num_samples)
    sums = _sums(model)

    def update(data: Any) -> None:
        functions.update([each.variable.read_value() for each in sums])

    def make(data: Any) -> MicroBatchStep:
        first, last = trace_function(model, gradients, data), trace_function(model, update, ())
        last = replace(last, variables=(*last.variables, *sums), holds_old=True)
        return MicroBatchStep(micro_batch=replace(first, returns_gradients=True, prefetches_next=True), update=last)

    return try_targets(prepared, make)


def _sums(model: Any) -> list[StepVariable]:
    owners = owners_of_variables(model)
    sums = []
    for weight in reversed(model.trainable_weights):
        shape, dtype = tuple(weight.shape), tf.as_dtype(weight._dtype)
        sums.append(
            StepVariable(
                variable=UninitializedVariable(shape=shape, dtype=dtype, trainable=False),
                shape=shape,
                dtype=dtype.name,
                size_bytes=int(tf.TensorShape(shape).num_elements() * dtype.size),
                kind="gradients",
                layer=owners.get(id(weight)),
            )
        )
    return sums


_OF_A_MICRO_BATCH: dict[Phase, Phase] = {"forward": "forward", "backward": "backward", "update": "backward"}
_OF_AN_UPDATE: dict[Phase, Phase] = dict.fromkeys(PHASES, "update")

_ROOM_TO_MOVE = 1.1
"""For new values beside old ones, which then come to lie elsewhere in each update."""


def graph_timeline_of_micro_batches(step: MicroBatchStep, request: StepRequest) -> GraphEstimate:
    """The memory of the step in graph mode."""
    first, update = graph_timeline(step.micro_batch, request), graph_timeline(step.update, request)
    return replace(
        first,
        timeline=_in_phases(first.timeline, _OF_A_MICRO_BATCH).followed_by(_in_phases(update.timeline, _OF_AN_UPDATE)),
        required_bytes=max(first.required_bytes, update.required_bytes),
    )


def jitted_timeline_of_micro_batches(step: MicroBatchStep, request: StepRequest, limit_bytes: int) -> "JittedEstimate":
    """The memory of the jitted step.

    XLA fuses an update into kernels that need no memory of their own: it is not compiled for this.
    """
    from fitroom.backends.tensorflow.trace.jitted.estimate import jitted_timeline

    first, update = jitted_timeline(step.micro_batch, request, limit_bytes), _fused_update(step.update)
    return replace(
        first,
        timeline=_in_phases(first.timeline, _OF_A_MICRO_BATCH).followed_by(update),
        required_bytes=max(first.required_bytes, int(_ROOM_TO_MOVE * update.peak_bytes)),
    )


def _in_phases(timeline: Timeline, phases: Mapping[Phase, Phase]) -> Timeline:
    """The same with phases under other names: operations are named for a whole step, which none of the two is."""
    moments = (replace(moment, phase=moment.phase and phases[moment.phase]) for moment in timeline.moments)
    return Timeline(buffers=timeline.buffers, moments=tuple(moments))


def _fused_update(update: TensorFlowStep) -> Timeline:
    """All variables, and the old values of those that are changed: all but the sums of gradients."""
    held = [each for each in update.variables for _ in range(1 if each.kind == "gradients" else 2)]
    buffers = [
        Buffer(size_bytes=round_up(each.size_bytes), kind=each.kind, layer=each.layer, first=0, last=0) for each in held
    ]
    return Timeline(buffers=tuple(buffers), moments=(Moment(name="update", layer=None, phase="update"),))
