"""Twins: models like the user's, without values, in another precision or for images of another size."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fitroom.errors import ModelError, message_of
from fitroom.keras_model.jit_choice import jit_choice, set_choice
from fitroom.keras_model.layers import models_within, precision_of
from fitroom.keras_model.private import compile_config, set_uninitialized_variables, uninitialized_variables


@contextmanager
def without_values() -> Iterator[None]:
    """A scope that makes variables without values: shapes are enough, and cost neither time nor memory.

    Keras would give all of them values at the end of its next scope, in the first step of a training.
    """
    import keras

    before = uninitialized_variables()
    try:
        with keras.StatelessScope(initialize_variables=False):
            yield
    finally:
        set_uninitialized_variables(before)


_METHODS = ("call", "compute_loss", "train_step")
"""Methods that a model's class may define, and that a twin made of its inputs and outputs would lack."""


def twin_in_precision(model: Any, policy: str | None) -> Any:
    """The model itself, or a twin whose layers follow another dtype policy."""
    current = precision_of(model)
    if policy is None or policy == current:
        return model

    def follow_policy(layer: Any) -> Any:
        config = layer.get_config()
        if not hasattr(layer, "dtype_policy"):  # an operation between layers
            return layer.__class__.from_config(config)
        # A layer that was set apart (a float32 softmax at the end, say) stays apart.
        if layer.dtype_policy.name == current:
            config["dtype"] = policy
        return layer.__class__.from_config(config)

    try:
        twin = _twin(model, clone_function=follow_policy, recursive=True)
        if any(getattr(type(twin), name) is not getattr(type(model), name) for name in _METHODS):
            raise TypeError(f"{type(model).__name__} cannot be made of inputs and outputs")
    except Exception as error:
        raise ModelError(
            f"The model {model.name!r} is in {current} and could not be rebuilt in {policy}: {message_of(error)}",
            hint=f"build it after `keras.config.set_dtype_policy({policy!r})`",
        ) from error
    # The twin as a whole follows it too: Keras scales the loss of a model that is in mixed_float16.
    twin.dtype_policy = policy
    return twin


def twin_of_size(model: Any, size: int) -> Any:
    """A twin for square images of another size, with weights of the same shapes.

    The model must have one input, and no layer whose weights depend on the size, as behind a Flatten.
    """
    import keras

    images = model.inputs[0]
    try:
        other = keras.Input((size, size, images.shape[-1]), dtype=images.dtype, name=images.name)
        twin = _twin(model, input_tensors=other)
    except Exception as error:
        raise _make_size_error(model, size, message_of(error).strip()) from error
    if [tuple(each.shape) for each in twin.weights] != [tuple(each.shape) for each in model.weights]:
        raise _make_size_error(model, size, "its weights would be of other shapes, as behind a Flatten.")
    return twin


def compile_arguments(model: Any) -> dict[str, Any]:
    """What the model was compiled with, its metrics copied: tracing may build them for another batch."""
    import keras

    arguments = compile_config(model)
    for name in ("metrics", "weighted_metrics"):
        if arguments[name] is not None:
            arguments[name] = keras.tree.map_structure(_copy_metric, arguments[name])
    return arguments


def _twin(model: Any, **changes: Any) -> Any:
    import keras

    with mark_uncompiled(model), without_values(), keep_random_state():
        twin = keras.models.clone_model(model, **changes)
    if model.compiled:
        compile_like(model, twin, **compile_arguments(model))
    return twin


def compile_like(model: Any, other: Any, **arguments: Any) -> None:
    """Compile `other` on the user's behalf, jitted as `model` was asked to be; the two may be the same."""
    import keras

    choice = jit_choice(model)
    # Keras's own `compile`, not that of the model's class: what that would set is there already.
    keras.Model.compile(other, **arguments)
    set_choice(other, choice)


@contextmanager
def keep_random_state() -> Iterator[None]:
    """Restore Python's random state, from which initialisers that are made again draw their seeds."""
    before = random.getstate()
    try:
        yield
    finally:
        random.setstate(before)


@contextmanager
def mark_uncompiled(model: Any) -> Iterator[None]:
    """Let Keras clone the model, and those nested in it, without copying their optimizers and their values."""
    import keras

    compiled = [found for found in (model, *models_within(model)) if isinstance(found, keras.Model) and found.compiled]
    for found in compiled:
        found.compiled = False
    try:
        yield
    finally:
        for found in compiled:
            found.compiled = True


def _copy_metric(metric: Any) -> Any:
    import keras

    return type(metric).from_config(metric.get_config()) if isinstance(metric, keras.Metric) else metric


def _make_size_error(model: Any, size: int, why: str) -> ModelError:
    return ModelError(
        f"The model {model.name!r} cannot be built for images of {size} x {size}: {why}",
        hint="write a function of `image_size` that builds it: `def make_model(image_size):`, as file.py:make_model",
    )
