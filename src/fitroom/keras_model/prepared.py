"""A Keras model made ready for tracing one step, and given back as it was.

The step that is traced is the model's own: its `train_step`, its loss and metrics, its optimizer. What tracing
needs beyond that (an optimizer with slots, a compile where there was none) is borrowed for the time of tracing and
takes no memory: variables are made without values.
"""

import inspect
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

from fitroom.errors import ModelError
from fitroom.keras_model.input_batch import (
    build_inner_layers,
    describe_open_dimensions,
    input_specs,
    name_of,
    target_specs,
)
from fitroom.keras_model.layers import precision_of
from fitroom.keras_model.optimizers import extra_optimizers
from fitroom.keras_model.private import learning_rate_setting, restore_added_losses
from fitroom.keras_model.twin import compile_arguments, compile_like, twin_in_precision, without_values
from fitroom.memory.step import StepRequest

DEFAULT_OPTIMIZER = "adam"
BorrowValues = Callable[[Iterable[Any]], AbstractContextManager[None]]
"""Gives Keras variables that have no value one to trace with, and takes it back at the end."""

_DEFAULT_LOSSES = {"softmax": "sparse_categorical_crossentropy", "sigmoid": "binary_crossentropy"}


@dataclass(frozen=True, kw_only=True)
class PreparedModel:
    """A compiled model with a built optimizer, the batch it is fed, and the step that is asked for."""

    model: Any
    request: StepRequest
    x: Any
    """A structure of TensorSpec, as the model takes it."""

    y_candidates: tuple[Any, ...]
    """Structures of TensorSpec that the loss may want, the likeliest first; empty for predict."""

    precision: str
    notes: tuple[str, ...]

    @property
    def num_samples(self) -> int:
        """The size of the micro-batch."""
        import keras

        return int(keras.tree.flatten(self.x)[0].shape[0])


@contextmanager
def prepare_model(
    model: Any,
    request: StepRequest,
    borrow_values: BorrowValues | None = None,
    slots_scope: Callable[[], AbstractContextManager[Any]] | None = None,
) -> Iterator[PreparedModel]:
    """Prepare a model for tracing one step, for the time of the block; afterwards it is as it was.

    Where the step is a function of its state (JAX) nothing has a value. Where it reads and assigns variables by
    itself, `borrow_values` gives them something to read and assign. `slots_scope` is the scope in which the borrowed
    optimizer makes its variables; in the default they have no values, which some optimizers refuse.
    """
    import keras

    if not isinstance(model, keras.Model):
        raise ModelError(
            f"The model must be a `keras.Model`. Received: {model!r} of type {type(model).__name__}.",
            hint="pass the model itself, or on the command line a function that returns it",
        )
    x = input_specs(model, request.batch_size, request.recipe)
    sizes_note = describe_open_dimensions(model)
    build_inner_layers(model, x)
    model = twin_in_precision(model, request.recipe.precision)
    borrow = borrow_values or (lambda variables: nullcontext())
    with _restore_model(model), borrow(model.variables):
        notes = _compile_for_tracing(model, request, slots_scope or without_values) if request.training else ()
        # In this scope nothing gets a value, and what a step assigns on the side is held back from the model.
        scope = keras.StatelessScope(initialize_variables=False) if borrow_values is None else nullcontext()
        with scope as held_back, borrow(model.optimizer.variables if request.training else ()):
            yield PreparedModel(
                model=model,
                request=request,
                x=x,
                y_candidates=target_specs(model, x) if request.training else (),
                precision=precision_of(model),
                notes=(*notes, *sizes_note),
            )
    if held_back and held_back.state_mapping:
        raise ModelError(
            f"The step of {model.name!r} assigns variables by itself, which JAX does not trace. "
            "Expected: a function of the state, as Keras has it on JAX.",
            hint="`train_step(self, state, data)` must return `logs, state` and leave variables as they are",
        )


@contextmanager
def _restore_model(model: Any) -> Iterator[None]:
    """Restore the model, its optimizers and the losses that layers added at the end of the block."""
    with restore_added_losses(model), ExitStack() as stack:
        for each in (model, *extra_optimizers(model)):  # a step builds the optimizers that a model brings, too
            stack.enter_context(_restore_attributes(each))
        yield


@contextmanager
def _restore_attributes(thing: Any) -> Iterator[None]:
    """Restore an object's attributes, and the content of lists and dicts among them, in which Keras tracks objects."""
    saved = dict(vars(thing))
    with ExitStack() as stack:
        for held in saved.values():
            if hasattr(held, "_storage"):  # TensorFlow's, around a list
                stack.enter_context(_restore_attributes(held))
        # TensorFlow's own list and dict types are proxies, which check what they stand for.
        plain = [held for held in saved.values() if not type(held).__module__.startswith("tensorflow.")]
        lists = [(held, list(held)) for held in plain if isinstance(held, list)]
        dicts = [(held, dict(held)) for held in plain if isinstance(held, dict)]
        try:
            yield
        finally:
            vars(thing).clear()
            vars(thing).update(saved)
            for held, items in lists:
                list.__setitem__(held, slice(None), items)
            for held, values in dicts:
                dict.clear(held)
                dict.update(held, values)


def _compile_for_tracing(
    model: Any, request: StepRequest, slots_scope: Callable[[], AbstractContextManager[Any]]
) -> tuple[str, ...]:
    """Compile the model with an optimizer of its own class whose slots have no values, and a loss if it has none."""
    compiled = model.compiled and model.optimizer is not None
    has_defaults = compiled or _compile_by_defaults_of_class(model)
    arguments = compile_arguments(model) if has_defaults else {"loss": default_loss(model)}
    if request.loss is not None:
        arguments |= {"loss": request.loss, "loss_weights": None}
    wanted = request.optimizer or request.recipe.optimizer
    optimizer = _unbuilt_copy(wanted or (model.optimizer if has_defaults else DEFAULT_OPTIMIZER))
    if (request.recipe.keras_accumulation or 1) > 1:
        inner = getattr(optimizer, "inner_optimizer", optimizer)
        inner.gradient_accumulation_steps = request.recipe.keras_accumulation

    def compile_with(optimizer: Any, scope: Callable[[], AbstractContextManager[Any]]) -> None:
        compile_like(model, model, **arguments | {"optimizer": optimizer})
        with scope():
            model.optimizer.build(model.trainable_variables)

    try:
        try:
            compile_with(optimizer, slots_scope)
        except ValueError:  # Adafactor insists on values; what it keeps is small
            compile_with(_unbuilt_copy(optimizer), nullcontext)
    except (ValueError, TypeError) as error:
        raise ModelError(
            f"The model {model.name!r} could not be compiled with {type(optimizer).__name__} and "
            f"{name_of(arguments['loss'])}: {error}",
            hint="does `model.compile` accept this optimizer and this loss?",
        ) from error
    if compiled:
        return ()
    names = f"{type(optimizer).__name__} and {name_of(arguments['loss'])}"
    return (f"Not compiled by you: estimated with {names}.",)


def compile_by_default(model: Any) -> None:
    """Compile a model as an estimate assumes it: as its class does by itself, or with Adam and a loss that suits."""
    if not _compile_by_defaults_of_class(model):
        model.compile(DEFAULT_OPTIMIZER, default_loss(model))


def _compile_by_defaults_of_class(model: Any) -> bool:
    """Compile it where its class has a `compile` of its own with a default loss, as classes of KerasHub have."""
    parameter = inspect.signature(type(model).compile).parameters.get("loss")
    if parameter is None or parameter.default in (None, inspect.Parameter.empty):
        return False
    model.compile()
    return True


def _unbuilt_copy(optimizer: Any) -> Any:
    import keras

    try:
        found = keras.optimizers.get(optimizer)
        with warnings.catch_warnings(action="ignore"):  # that a function of the user's cannot be saved
            config = found.get_config()
        rate = learning_rate_setting(found)
        return type(found).from_config(config | ({"learning_rate": rate} if callable(rate) else {}))
    except (ValueError, TypeError, NotImplementedError) as error:
        raise ModelError(
            f"The optimizer could not be copied: {error}. Received: {optimizer!r}.",
            hint="a name or an object of `keras.optimizers`; one of your own class needs a whole `get_config`",
        ) from error


def default_loss(model: Any) -> str:
    """A loss that suits the last layer."""
    activation = getattr(model.layers[-1], "activation", None) if model.layers else None
    return _DEFAULT_LOSSES.get(getattr(activation, "__name__", ""), "mean_squared_error")
