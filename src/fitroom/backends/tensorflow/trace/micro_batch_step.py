"""The step of a batch in parts, traced without running it: what one part does, and the update at the end."""

from dataclasses import dataclass, replace
from typing import Any

import tensorflow as tf
from tensorflow.python.ops.resource_variable_ops import UninitializedVariable  # the one kind without a value

from fitroom.backends.tensorflow.trace.step import (
    StepVariable,
    TensorFlowStep,
    given_targets,
    traced_step,
    training_step,
)
from fitroom.backends.tensorflow.train.micro_batches import StepFunctions
from fitroom.backends.tensorflow.train.recompute import recompute_segment
from fitroom.backends.tensorflow.train.statistics import Moves
from fitroom.backends.tensorflow.train.stepper import SMALL_BYTES
from fitroom.keras_model.layers import owners_of_variables
from fitroom.keras_model.losses import is_from_keras
from fitroom.keras_model.objective import Objective
from fitroom.keras_model.prepared import PreparedModel
from fitroom.keras_model.recompute import Rematerialisation
from fitroom.recipe import Remat
from fitroom.remat.shapes import num_bytes

_SHARE = 0.5
"""Of a part in the batch. Any will do that no compiler can leave out."""


@dataclass(frozen=True, kw_only=True)
class CutStep:
    """The programs of a batch in parts. Sums of gradients are on the card in both, as variables of kind "gradients"."""

    part: TensorFlowStep
    update: TensorFlowStep


def cut_step(prepared: PreparedModel, remat: str | Remat | None = None) -> CutStep:
    """The step of `fitroom.fit` in parts of the prepared size, with the first targets that the loss takes."""
    model = prepared.model
    objective = Objective(model)
    objective.check_can_cut("train_step")
    functions = StepFunctions(model, objective)
    sums = _sums(model)

    def given() -> dict[str, Any]:
        return {
            "gradients": [each.variable.read_value() for each in sums],
            "moves": Moves(model).none(),
            "losses": tf.zeros((1 + objective.num_losses,)),
        }

    def part(data: Any) -> dict[str, Any]:
        shares = tf.fill((objective.num_losses,), _SHARE)
        return functions.part(data, shares, tf.constant(_SHARE), given())

    def update(data: Any) -> dict[str, Any]:
        return functions.finish(given(), tf.constant(1))

    in_segments = Rematerialisation(model, remat, recompute_segment).of_step(part, prepared.num_samples)

    def make(data: Any) -> CutStep:
        steps = traced_step(model, in_segments, data), traced_step(model, update, ())
        first, last = (replace(step, variables=(*step.variables, *sums)) for step in steps)
        return CutStep(
            part=replace(first, returns_gradients=True, sends_next=True), update=replace(last, holds_old=True)
        )

    return given_targets(prepared, make, with_loss=True)


def whole_step(prepared: PreparedModel, remat: str | Remat) -> CutStep | TensorFlowStep:
    """The step of `fitroom.fit` on a whole batch: a program for the gradients and one for the update, unless the model
    is so small, or its own, that Keras's step is taken as it is."""
    model = prepared.model
    weights = [*model.trainable_variables, *model.optimizer.variables]
    changed_bytes = sum(num_bytes(each.shape, each.dtype) for each in weights)
    if changed_bytes <= SMALL_BYTES or not is_from_keras(type(model).train_step):
        return training_step(prepared, remat)
    functions = StepFunctions(model, Objective(model))
    gradients = Rematerialisation(model, remat, recompute_segment).of_step(functions.gradients, prepared.num_samples)
    sums = _sums(model)

    def update(data: Any) -> None:
        functions.update([each.variable.read_value() for each in sums])

    def make(data: Any) -> CutStep:
        first, last = traced_step(model, gradients, data), traced_step(model, update, ())
        last = replace(last, variables=(*last.variables, *sums), holds_old=True)
        return CutStep(part=replace(first, returns_gradients=True, sends_next=True), update=last)

    return given_targets(prepared, make)


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
