"""The variables that a forward pass in training changes, and a scope that collects such changes."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import keras

from fitroom.keras_model.private import (
    all_layers,
    compiled_loss,
    compiled_metrics,
    own_trainable_variables,
    seed_generators,
    set_uninitialized_variables,
    uninitialized_variables,
)


@dataclass(frozen=True, kw_only=True)
class ForwardState:
    """The variables that a forward pass in training may change.

    Frozen weights are not among them: they are not trainable, but no forward pass touches them.
    """

    statistics: tuple[Any, ...]
    """Statistics such as BatchNormalization's. Every micro-batch starts from the value before the batch, and the
    outcomes are averaged by their samples: they change by as much as with one whole batch. Of integers (counters) the
    last outcome is taken."""

    seeds: tuple[Any, ...]
    """States of random generators. A micro-batch continues from the last one, so that no two draw the same mask."""


def forward_state(model: Any) -> ForwardState:
    """The variables of `model` that a training forward pass may change; metrics apart."""
    seeds, frozen = {}, set()
    for layer in all_layers(model):
        frozen |= {id(variable) for variable in own_trainable_variables(layer)}
        for generator in seed_generators(layer):
            seeds[id(generator.state)] = generator.state
    metrics = {id(variable) for variable in model.metrics_variables}
    statistics = [
        variable
        for variable in model.non_trainable_variables
        if id(variable) not in frozen and id(variable) not in seeds and id(variable) not in metrics
    ]
    return ForwardState(statistics=tuple(statistics), seeds=tuple(seeds.values()))


def has_batch_statistics(model: Any) -> bool:
    """Whether a layer in training looks at the batch as a whole, as BatchNormalization does."""
    return any(isinstance(layer, keras.layers.BatchNormalization) and layer.trainable for layer in all_layers(model))


def needs_batch_to_build(model: Any) -> bool:
    """Whether Keras's `fit` looks at a batch before the first step, to build the model, its loss or its metrics.

    On TensorFlow it builds them while it traces the first step.
    """
    if keras.config.backend() == "tensorflow":
        return False
    trackers = (compiled_loss(model), compiled_metrics(model))
    is_built = all(layer.built for layer in all_layers(model))
    return not is_built or any(tracker is not None and not tracker.built for tracker in trackers)


class IsolatedScope(keras.StatelessScope):  # type: ignore[misc]
    """A scope in which variables have the values given, or else their own, and assignments are collected, not made."""

    def __init__(self, values: Iterable[tuple[Any, Any]] = ()) -> None:
        super().__init__(initialize_variables=False)
        # Keras would take them in the precision that the model computes in, which is not that of every layer.
        self.state_mapping.update({id(variable): value for variable, value in values})
        self._changes: dict[int, tuple[Any, Any]] = {}

    def add_update(self, update: tuple[Any, Any]) -> None:
        """Collect an assignment; called by Keras."""
        super().add_update(update)
        self._changes[id(update[0])] = update

    @property
    def changes(self) -> list[tuple[Any, Any]]:
        """The variables that were assigned, each with its last value."""
        return list(self._changes.values())

    def __exit__(self, *error: Any) -> None:
        """Leave the scope. A variable that was made in it, such as the seed of a layer, gets its first value."""
        super().__exit__(*error)
        made = {key: variable for key, (variable, _) in self._changes.items() if variable._value is None}
        for variable in made.values():
            variable._deferred_initialize()
        if made:
            set_uninitialized_variables([each for each in uninitialized_variables() if id(each) not in made])
