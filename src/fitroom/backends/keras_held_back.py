"""What layers change while they run, held back from their variables."""

from collections.abc import Iterable
from typing import Any

import keras
from keras.src.backend.common import global_state  # no public name leads to variables that wait for their values


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
