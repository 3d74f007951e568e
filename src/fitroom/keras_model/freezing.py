"""Freezing: the first layers of a model left untrained, temporarily or for good."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fitroom.errors import InputError, ModelError
from fitroom.keras_model.private import all_layers
from fitroom.remat.graph import functional_of, layer_graph


def layers_with_weights(model: Any) -> list[Any]:
    """The layers with weights, in the order in which data run through them; those of nested models included."""
    if functional_of(model) is None:
        raise ModelError(
            f"Which layers of {model.name!r} come first cannot be told: its `call` is Python code of its own.",
            hint="set `trainable = False` on layers of your choice, compile, and leave frozen layers out of the recipe",
        )
    operations = {id(call.operation): call.operation for call in layer_graph(model).calls if not call.enters}
    return [each for each in operations.values() if getattr(each, "weights", ())]


def num_frozen(model: Any) -> int:
    """How many of the first layers are not trained."""
    layers = layers_with_weights(model)
    return next((number for number, layer in enumerate(layers) if layer.trainable_variables), len(layers))


def freeze_first(model: Any, number: int) -> None:
    """Leave the first `number` layers with weights untrained. A compiled model has to be compiled again."""
    for layer in _first(model, number):
        layer.trainable = False


@contextmanager
def freeze_temporarily(model: Any, number: int | None) -> Iterator[None]:
    """Leave the first `number` layers with weights untrained for the time of the block; None or 0 freezes none."""
    if not number:
        yield
        return
    layers = [inner for layer in _first(model, number) for inner in all_layers(layer)]
    # Outer layers first: setting the flag of a layer sets that of all layers within it.
    flags = [(layer, layer.trainable) for layer in layers]
    flags += [(variable, variable.trainable) for layer in layers for variable in layer.variables]
    freeze_first(model, number)
    try:
        yield
    finally:
        for owner, is_trained in flags:
            owner.trainable = is_trained


def _first(model: Any, number: int) -> list[Any]:
    layers = layers_with_weights(model)
    if number >= len(layers):
        raise InputError(
            f"`frozen_layers` must leave something to train. Received: {number}, "
            f"and {model.name!r} has {len(layers)} layers with weights.",
            hint=f"at most {len(layers) - 1}, which trains the last one alone",
        )
    return layers[:number]
