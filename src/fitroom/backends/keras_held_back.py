"""What layers change while they run, held back from their variables."""

import random
from collections.abc import Iterable
from typing import Any

import keras
from keras.src.random.seed_generator import global_seed_generator  # no public name


class HeldBack(keras.StatelessScope):  # type: ignore[misc]
    """A scope in which variables have the values given, or else their own, and keep them whatever layers assign."""

    def __init__(self, values: Iterable[tuple[Any, Any]] = ()) -> None:
        _make_keras_seed()
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


def _make_keras_seed() -> None:
    """Make the generator for layers that bring none, if it is not there: in the scope it would have no value.

    Python's own generator, from which it takes its seed, stays as it was: perhaps nobody asks for this one.
    """
    state = random.getstate()
    global_seed_generator()
    random.setstate(state)
