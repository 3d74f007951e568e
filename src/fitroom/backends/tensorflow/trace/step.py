"""The real Keras step on TensorFlow, traced without running it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import keras
import tensorflow as tf

from fitroom.backends.tensorflow.trace.light_tracing import light_tracing
from fitroom.backends.tensorflow.train.captures import release_with
from fitroom.backends.tensorflow.train.computation import Computation
from fitroom.batch import Batch
from fitroom.errors import InputError, ModelError, message_of
from fitroom.keras_model.layers import layer_names, layer_paths, owners_of_slots, owners_of_variables
from fitroom.keras_model.optimizers import extra_optimizers
from fitroom.keras_model.prepared import PreparedModel
from fitroom.keras_model.private import unbuilt_trackers
from fitroom.memory.timeline import Kind

Made = TypeVar("Made")


@dataclass(frozen=True, kw_only=True, slots=True)
class StepVariable:
    """A variable that is on the card while the step runs, whether the step uses it or not."""

    variable: Any
    """The `tf.Variable`; it may have no value."""

    shape: tuple[int, ...]
    dtype: str
    size_bytes: int
    kind: Kind
    """"weights", "optimizer", "gradients" for sums of them, "input" for a batch, or "other" for those of metrics."""

    layer: str | None
    """The path of the Keras layer it belongs to; a slot belongs to the layer of its weight."""


@dataclass(frozen=True, kw_only=True)
class TensorFlowStep:
    """A step as Keras runs it on TensorFlow: a function of one batch, and the variables it reads and assigns.

    It holds while the model is prepared: variables without values are lent to the model for that time only.
    """

    function: Callable[[Any], Any]
    """The step as plain Python, of one argument `data` with the structure of `specs`: `train_step` or
    `predict_step`. Wrap it in `tf.function(..., autograph=False, jit_compile=...)` as Keras does."""

    specs: tuple[Any, ...]
    """`data`: `(x, y)` for training and `(x,)` for predict, as structures of `tf.TensorSpec` with the whole
    (micro-)batch."""

    concrete: Any
    """The same as a `tf.types.experimental.ConcreteFunction`, traced on `specs` and not jitted. Its graph is
    `concrete.graph`; `captures` tells which of its inputs is which variable."""

    variables: tuple[StepVariable, ...]
    """Weights, then the optimizer's, then those of metrics."""

    layer_names: frozenset[str]
    layer_paths: frozenset[str]
    """Of every layer, of those that hold others and of those within."""

    training: bool

    returns_gradients: bool = False
    """Whether what it returns stays on the card when it is done."""

    prefetches_next: bool = False
    """Whether the next batch is transferred to the card while it runs."""

    holds_old: bool = False
    """Whether the old values of variables that it changes are held on the card until it is done."""

    @property
    def batch_bytes(self) -> int:
        """The size of one batch."""
        return sum(_size_bytes(spec.shape, spec.dtype) for spec in tf.nest.flatten(self.specs))

    def captures(self) -> dict[str, StepVariable | None]:
        """By the name of each placeholder of the graph that is captured: its variable, or None where it has none."""
        by_handle = {id(found.variable.handle): found for found in self.variables}
        return {inner.op.name: by_handle.get(id(outer)) for outer, inner in self.concrete.graph.captures}


def training_step(prepared: PreparedModel) -> TensorFlowStep:
    """The step of `fit`, given the first targets that its loss takes."""
    model = prepared.model
    function = computation_of(prepared).of_step(model.train_step, prepared.num_samples)
    return try_targets(prepared, lambda data: trace_function(model, function, data))


def computation_of(prepared: PreparedModel) -> Computation:
    """How the model computes, as the recipe says."""
    recipe = prepared.request.recipe
    return Computation(prepared.model, remat=recipe.remat, kernels=recipe.kernels)


def try_targets(prepared: PreparedModel, make: Callable[[Any], Made], *, with_loss: bool = False) -> Made:
    """What `make` makes of the first batch whose targets the loss takes; `with_loss`: the loss is built before."""
    model, x = prepared.model, _tensor_specs(prepared.x)
    refusals: list[Exception] = []
    for candidate in prepared.y_candidates:
        try:
            _build_trackers(model, prepared.x, candidate, with_loss=with_loss)
            y = None if candidate is None else _tensor_specs(candidate)
            return make((x, y) if with_loss else Batch(x=x, y=y).data())
        except InputError:
            raise  # about what was asked for, such as a budget
        except Exception as error:  # the step is the user's own code, or Keras's: anything can come of it
            refusals.append(error)
    raise ModelError(
        f"The training step of {model.name!r} could not be traced: {message_of(refusals[0])}",
        hint="does `model.fit` run on the CPU with this loss and a batch of this shape?",
    ) from refusals[0]


def predict_step(prepared: PreparedModel) -> TensorFlowStep:
    """The step of `predict`."""
    model, x = prepared.model, _tensor_specs(prepared.x)
    try:
        return trace_function(model, model.predict_step, (x,), training=False)
    except Exception as error:
        raise ModelError(
            f"The prediction step of {model.name!r} could not be traced: {message_of(error)}",
            hint="does `model.predict` run on the CPU with a batch of this shape?",
        ) from error


def trace_function(
    model: Any, function: Callable[[Any], Any], data: tuple[Any, ...], *, training: bool = True
) -> TensorFlowStep:
    """A function of `data`, with the variables that the model has by then."""
    with light_tracing():
        concrete = tf.function(function, autograph=False).get_concrete_function(data)
    release_with(concrete, concrete.graph)
    owners = owners_of_variables(model)
    groups: list[tuple[Kind, Any]] = [("weights", model.variables)]
    if training:
        owners |= owners_of_slots(model, owners)
        groups += [("optimizer", optimizer.variables) for optimizer in (model.optimizer, *extra_optimizers(model))]
        groups += [("other", model.metrics_variables)]
    found: dict[int, StepVariable] = {}
    for kind, variables in groups:
        for variable in variables:
            found.setdefault(id(variable), _step_variable(variable, kind, owners.get(id(variable))))
    return TensorFlowStep(
        function=function,
        specs=data,
        concrete=concrete,
        variables=tuple(found.values()),
        layer_names=layer_names(model),
        layer_paths=_all_paths(model),
        training=training,
    )


def _all_paths(model: Any) -> frozenset[str]:
    paths = {path for path, _ in layer_paths(model)} | set(owners_of_variables(model).values())
    return frozenset(
        "/".join(parts[:end]) for parts in (p.split("/") for p in paths) for end in range(1, len(parts) + 1)
    )


def _step_variable(variable: Any, kind: Kind, layer: str | None) -> StepVariable:
    dtype = tf.as_dtype(variable._dtype)  # as stored, whatever it is cast to when it is read
    shape = tuple(variable.shape)
    return StepVariable(
        variable=variable._value,
        shape=shape,
        dtype=dtype.name,
        size_bytes=_size_bytes(shape, dtype),
        kind=kind,
        layer=layer,
    )


def _build_trackers(model: Any, x: Any, y: Any, *, with_loss: bool) -> None:
    """Make the variables of metrics and of the losses of several outputs, as `fit` does before its first step.

    Keras's own way of doing so traces the model once more; and it has no public name, hence the underscores.
    """
    trackers = unbuilt_trackers(model)
    if y is None or (model._compile_metrics is None and len(tf.nest.flatten(y)) < 2 and not with_loss):
        return  # one loss, which has no variables
    batch = keras.tree.map_structure(lambda spec: keras.KerasTensor(spec.shape, dtype=spec.dtype), x)
    y_pred = model.compute_output_spec(batch)
    y_true = keras.tree.map_structure(lambda spec: keras.KerasTensor(spec.shape, dtype=spec.dtype), y)
    for tracker in trackers:
        tracker.build(y_true, y_pred)


def _tensor_specs(specs: Any) -> Any:
    return keras.tree.map_structure(lambda spec: tf.TensorSpec(spec.shape, spec.dtype), specs)


def _size_bytes(shape: Any, dtype: Any) -> int:
    size = int(tf.as_dtype(dtype).size)
    for length in shape:
        size *= int(length)
    return size
