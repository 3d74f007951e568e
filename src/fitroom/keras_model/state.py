"""Which of a Keras model's variables a training step changes, and how micro-batches share them."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import keras
from keras.src.backend.common import global_state  # no public name leads to variables that wait for their values


@dataclass(frozen=True, kw_only=True)
class ForwardState:
    """The variables that a forward pass in training may change.

    Frozen weights are not among them: they are not trainable, but no forward pass touches them.
    """

    moved: tuple[Any, ...]
    """Statistics such as BatchNormalization's. Every micro-batch starts from the value before the batch, and the
    outcomes are averaged by their samples: they move as far as one whole batch would have moved them. Of integers
    (counters) the last outcome is taken."""

    seeds: tuple[Any, ...]
    """Of random generators. They go on from micro-batch to micro-batch, so that no two draw the same mask."""


def forward_state(model: Any) -> ForwardState:
    """The variables of `model` that a training forward pass may change; metrics apart."""
    seeds, frozen = {}, set()
    for layer in model._flatten_layers():  # no public name for the layers within layers
        frozen |= {id(variable) for variable in layer._trainable_variables}
        for generator in layer._seed_generators:
            seeds[id(generator.state)] = generator.state
    metrics = {id(variable) for variable in model.metrics_variables}
    moved = [
        variable
        for variable in model.non_trainable_variables
        if id(variable) not in frozen and id(variable) not in seeds and id(variable) not in metrics
    ]
    return ForwardState(moved=tuple(moved), seeds=tuple(seeds.values()))


def has_batch_statistics(model: Any) -> bool:
    """Whether a layer in training looks at the batch as a whole, as BatchNormalization does."""
    import keras

    return any(
        isinstance(layer, keras.layers.BatchNormalization) and layer.trainable for layer in model._flatten_layers()
    )


def needs_a_batch(model: Any) -> bool:
    """Whether Keras's `fit` looks at a batch before the first step, to build the model, its loss or its metrics.

    On TensorFlow it builds them while it traces the first step.
    """
    import keras

    if keras.config.backend() == "tensorflow":
        return False
    trackers = (model._compile_loss, model._compile_metrics)  # no public name for whether they are built
    is_built = all(layer.built for layer in model._flatten_layers())
    return not is_built or any(tracker is not None and not tracker.built for tracker in trackers)


class HeldBack(keras.StatelessScope):  # type: ignore[misc]
    """A scope in which variables have the values given, or else their own, and keep them whatever layers assign."""

    def __init__(self, values: Iterable[tuple[Any, Any]] = ()) -> None:
        super().__init__(initialize_variables=False)
        # Keras would take them in the precision that the model computes in, which is not that of every layer.
        self.state_mapping.update({id(variable): value for variable, value in values})
        self._changes: dict[int, tuple[Any, Any]] = {}

    def add_update(self, update: tuple[Any, Any]) -> None:
        """Keras tells of an assignment."""
        super().add_update(update)
        self._changes[id(update[0])] = update

    @property
    def changes(self) -> list[tuple[Any, Any]]:
        """The variables that were assigned, each with its last value."""
        return list(self._changes.values())

    def __exit__(self, *error: Any) -> None:
        """Leave it. A variable that was made within, as the seed of layers that bring none, gets its first value."""
        super().__exit__(*error)
        made = {key: variable for key, (variable, _) in self._changes.items() if variable._value is None}
        for variable in made.values():
            variable._deferred_initialize()
        if made:
            waiting = global_state.get_global_attribute("uninitialized_variables")
            waiting[:] = [variable for variable in waiting if id(variable) not in made]
