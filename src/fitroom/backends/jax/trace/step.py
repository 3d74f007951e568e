"""The real Keras step on JAX, traced without running it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import keras

from fitroom.backends.jax.trace.attribution import JaxScopeReader
from fitroom.backends.jax.train.micro_batches import MicroBatchStep
from fitroom.backends.jax.train.recompute import recompute_segment
from fitroom.backends.jax.train.state import reverse_groups, with_reversed_state
from fitroom.backends.xla.attribution import Argument
from fitroom.batch import Batch
from fitroom.errors import InputError, ModelError
from fitroom.keras_model.layers import layer_names, owners_of_slots, owners_of_variables
from fitroom.keras_model.objective import Objective
from fitroom.keras_model.prepared import PreparedModel
from fitroom.keras_model.private import unbuilt_trackers
from fitroom.keras_model.recompute import Rematerialisation
from fitroom.memory.timeline import Kind


@dataclass(frozen=True, kw_only=True)
class JaxStep:
    """A step as JAX sees it: a jitted function of state and batch, and what each of its arguments is."""

    jitted: Any
    """The function as Keras jits it; its first argument, the state, is donated."""

    specs: tuple[Any, ...]
    """Its arguments as structures of `jax.ShapeDtypeStruct`."""

    arguments: tuple[Argument, ...]
    """The same, flattened, with what they are."""

    layer_names: frozenset[str]

    @property
    def batch_bytes(self) -> int:
        """The size of one batch on the device."""
        return sum(argument.size_bytes for argument in self.arguments if argument.kind == "input")

    @property
    def scope_reader(self) -> JaxScopeReader:
        """Reads layers and phases from the names of the step's operations."""
        training = any(argument.kind == "optimizer" for argument in self.arguments)
        return JaxScopeReader(layer_names=self.layer_names, training=training)

    def export(self) -> Any:
        """The step lowered for NVIDIA GPUs, as a `jax.export.Exported`."""
        # It is compiled by the same version at once: no need for the custom calls in it to be stable.
        any_custom_call = jax.export.DisabledSafetyCheck.custom_call("ALL")
        export = jax.export.export(self.jitted, platforms=["cuda"], disabled_checks=[any_custom_call])
        return export(*self.specs)


def training_step(prepared: PreparedModel) -> JaxStep:
    """The step of `fit`, Keras's or fitroom's as the request says, with the first targets that its loss takes."""
    request = prepared.request
    sizes = request.micro_batch_sizes
    model, x = prepared.model, _structs(prepared.x, sum(sizes))
    rematerialisation = Rematerialisation(model, request.recipe.remat, recompute_segment)
    num_samples = max(sizes) if sizes else jax.tree.leaves(x)[0].shape[0]
    groups = [model.trainable_variables, model.non_trainable_variables, model.optimizer.variables]
    objective = Objective(model)
    if sizes:
        objective.check_can_cut("train_step")
    refusals: list[Exception] = []
    for candidate in prepared.y_candidates:
        y = None if candidate is None else _structs(candidate, sum(sizes))
        try:
            _build_trackers(model, x, y, with_loss=bool(sizes))
            function = _micro_batch_step(model, objective, sizes) if sizes else model.train_step
            function = rematerialisation.of_step(function, num_samples)
            data = (x, y) if sizes else Batch(x=x, y=y).data()
            num_variables = None
            # Some metrics make their variables when they first see a batch: they are part of the state from then on.
            while num_variables != len(model.metrics_variables):
                num_variables = len(model.metrics_variables)
                variables = [*groups, model.metrics_variables]
                if request.is_step_of_fitroom:
                    step = _jax_step(model, with_reversed_state(function), reverse_groups(variables), data)
                else:
                    step = _jax_step(model, function, variables, data)
                traced = step.jitted.trace(*step.specs)
        except InputError:
            raise  # about what was asked for, such as a budget
        except Exception as error:  # the step is the user's own code, or Keras's: anything can come of it
            refusals.append(error)
        else:
            _check_returns_state(traced.out_info, step.specs[0], model)
            return step
    raise ModelError(
        f"The training step of {model.name!r} could not be traced: {refusals[0]}",
        hint="does `model.fit` run on the CPU with this loss and a batch of this shape?",
    ) from refusals[0]


def _check_returns_state(returned: Any, state: Any, model: Any) -> None:
    """Refuse a `train_step` that does not return its state: its memory would not be that of training."""
    new_state = returned[1] if isinstance(returned, tuple) and len(returned) == 2 else None
    if [leaf.shape for leaf in jax.tree.leaves(new_state)] != [leaf.shape for leaf in jax.tree.leaves(state)]:
        raise ModelError(
            f"The `train_step` of {model.name!r} does not return the new state. Expected: `logs, state`, the state as "
            "it was given: trainable, non-trainable, optimizer and metrics variables.",
            hint="see Keras's guide on customizing `fit` with JAX",
        )


def predict_step(prepared: PreparedModel) -> JaxStep:
    """The step of `predict`."""
    model = prepared.model

    def predict(state: Any, data: Any) -> Any:
        outputs, non_trainable_variables = model.predict_step(state, data)
        return outputs, (state[0], non_trainable_variables)

    groups = [model.trainable_variables, model.non_trainable_variables]
    return _jax_step(model, predict, groups, (_structs(prepared.x),))


def _micro_batch_step(model: Any, objective: Objective, sizes: Sequence[int]) -> Any:
    objective.assume_losses()
    return MicroBatchStep(model, objective, sizes).train


def _jax_step(model: Any, function: Any, groups: Sequence[Sequence[Any]], batch: tuple[Any, ...]) -> JaxStep:
    """The step `function` of the state `groups`: variables that are trainable, not trainable, optimizer's, metrics'."""
    kinds: tuple[Kind, ...] = ("weights", "weights", "optimizer", "other")
    owners = owners_of_variables(model)
    owners |= owners_of_slots(model, owners) if len(groups) > 2 else {}
    state = tuple([_struct(variable) for variable in group] for group in groups)
    arguments = [
        Argument(
            size_bytes=_size_bytes(variable), kind=kind, layer=owners.get(id(variable)), shape=tuple(variable.shape)
        )
        for kind, group in zip(kinds, groups, strict=False)
        for variable in group
    ]
    arguments += [Argument(size_bytes=_size_bytes(leaf), kind="input", layer=None) for leaf in jax.tree.leaves(batch)]
    return JaxStep(
        # Unused arguments are kept: they are on the device all the same.
        jitted=jax.jit(function, donate_argnums=0, keep_unused=True),
        specs=(state, batch),
        arguments=tuple(arguments),
        layer_names=layer_names(model),
    )


def _build_trackers(model: Any, x: Any, y: Any, *, with_loss: bool) -> None:
    """Make the variables of metrics and of the losses of several outputs, as `fit` does before its first step.

    Keras's own way of doing so takes longer than all else, so the outputs' shapes come from JAX; and it has no
    public name, hence the underscores.
    """
    trackers = unbuilt_trackers(model)
    if y is None or (model._compile_metrics is None and len(jax.tree.leaves(y)) < 2 and not with_loss):
        return  # one loss, which has no variables
    state = [[_struct(v) for v in group] for group in (model.trainable_variables, model.non_trainable_variables)]
    y_pred = jax.eval_shape(lambda state, x: model.stateless_call(*state, x)[0], state, x)
    symbolic = [jax.tree.map(lambda leaf: keras.KerasTensor(leaf.shape, str(leaf.dtype)), t) for t in (y, y_pred)]
    for tracker in trackers:
        tracker.build(*symbolic)


def _structs(specs: Any, num_samples: int = 0) -> Any:
    """The specs as JAX has them; with `num_samples` samples where that is not 0."""

    def with_samples(spec: Any) -> Any:
        struct = _struct(spec)
        return struct.update(shape=(num_samples, *struct.shape[1:])) if num_samples else struct

    return keras.tree.map_structure(with_samples, specs)


def _struct(spec: Any) -> Any:
    return jax.ShapeDtypeStruct(spec.shape, jax.dtypes.canonicalize_dtype(spec.dtype))


def _size_bytes(spec: Any) -> int:
    size = jax.dtypes.canonicalize_dtype(spec.dtype).itemsize
    for length in spec.shape:
        size *= length
    return int(size)
