"""Models like the user's, without values: in another precision, or for pictures of another size."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fitroom.errors import ModelError, message_of
from fitroom.keras_model.compile_choice import jit_choice, set_choice
from fitroom.keras_model.layers import models_within, precision_of

_WAITING = "uninitialized_variables"


@contextmanager
def without_values() -> Iterator[None]:
    """A scope that makes variables without values: shapes are enough, and cost neither time nor memory.

    Keras would make up for it at the end of its next scope, for all of them at once: the first step of a training.
    """
    import keras
    from keras.src.backend.common import global_state  # no public name leads to variables that wait for their values

    before = list(global_state.get_global_attribute(_WAITING, []))
    try:
        with keras.StatelessScope(initialize_variables=False):
            yield
    finally:
        global_state.set_global_attribute(_WAITING, before)


_OWN = ("call", "compute_loss", "train_step")
"""What a model of the user's may bring, and a twin that is made of its inputs and outputs would be without."""


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
        if any(getattr(type(twin), name) is not getattr(type(model), name) for name in _OWN):
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
    """A twin for square pictures of another size, with the same weights: a model of one input, without a Flatten."""
    import keras

    pictures = model.inputs[0]
    try:
        other = keras.Input((size, size, pictures.shape[-1]), dtype=pictures.dtype, name=pictures.name)
        twin = _twin(model, input_tensors=other)
    except Exception as error:
        raise _of_one_size(model, size, message_of(error).strip()) from error
    if [tuple(each.shape) for each in twin.weights] != [tuple(each.shape) for each in model.weights]:
        raise _of_one_size(model, size, "its weights would be of other shapes, as behind a Flatten.")
    return twin


def compile_arguments(model: Any) -> dict[str, Any]:
    """What the model was compiled with, with metrics of their own: tracing may build them for a batch like ours."""
    import keras

    arguments = dict(model._compile_config.config)  # the public `get_compile_config` loses functions of the user's
    for name in ("metrics", "weighted_metrics"):
        if arguments[name] is not None:
            arguments[name] = keras.tree.map_structure(_unbuilt_metric, arguments[name])
    return arguments


def _twin(model: Any, **changes: Any) -> Any:
    import keras

    with _not_compiled(model), without_values(), _seeds_kept():
        twin = keras.models.clone_model(model, **changes)
    if model.compiled:
        compile_like(model, twin, **compile_arguments(model))
    return twin


def compile_like(model: Any, other: Any, **arguments: Any) -> None:
    """Compile a model on the user's behalf: whether it is jitted is what was asked for `model`, be they the same."""
    import keras

    choice = jit_choice(model)
    # Keras's own, whatever the model's class makes of `compile`: its other attributes are there already.
    keras.Model.compile(other, **arguments)
    set_choice(other, choice)


@contextmanager
def _seeds_kept() -> Iterator[None]:
    """Initialisers that are made anew draw their seeds from Python's random numbers."""
    before = random.getstate()
    try:
        yield
    finally:
        random.setstate(before)


@contextmanager
def _not_compiled(model: Any) -> Iterator[None]:
    """Let Keras clone the model, and those nested in it, without making their optimizers anew, values and all."""
    import keras

    compiled = [found for found in (model, *models_within(model)) if isinstance(found, keras.Model) and found.compiled]
    for found in compiled:
        found.compiled = False
    try:
        yield
    finally:
        for found in compiled:
            found.compiled = True


def _unbuilt_metric(metric: Any) -> Any:
    import keras

    return type(metric).from_config(metric.get_config()) if isinstance(metric, keras.Metric) else metric


def _of_one_size(model: Any, size: int, why: str) -> ModelError:
    return ModelError(
        f"The model {model.name!r} cannot be had for pictures of {size} x {size}: {why}",
        hint="write a function of `image_size` that builds it: `def make_model(image_size):`, as file.py:make_model",
    )
