"""The names of Keras's optimizers, and those that a model holds."""

from collections.abc import Iterable, Iterator
from typing import Any

import keras

from fitroom.errors import UnknownNameError
from fitroom.keras_model.names import exported_names


def optimizer_class(name: str) -> Any:
    """The class of that name, in any case."""
    import keras

    return getattr(keras.optimizers, _known(name, dir(keras.optimizers)))


def check_optimizer(name: str | None) -> None:
    """Refuse a name that Keras does not have, without importing Keras. None is the model's own."""
    if name is not None and (names := exported_names("optimizers")):
        _known(name, names)


def _known(name: str, names: Iterable[str]) -> str:
    """The name as Keras spells it."""
    known = {one.lower(): one for one in names if one[0].isupper() and one != "Optimizer"}
    if name.lower() not in known:
        raise UnknownNameError("optimizer", name, known, more="any of keras.optimizers")
    return known[name.lower()]


def helpers_of(model: Any) -> list[Any]:
    """Optimizers that a model holds beside the one it is compiled with, as one that trains two networks does."""
    import keras

    held = [value for name, value in vars(model).items() if name not in ("optimizer", "_optimizer")]
    found = [value for value in _all_parts(held) if isinstance(value, keras.optimizers.Optimizer)]
    helpers = {id(helper): helper for helper in found}  # on TensorFlow Keras has them twice
    helpers.pop(id(getattr(model, "optimizer", None)), None)
    return list(helpers.values())


def _all_parts(value: Any) -> Iterator[Any]:
    if isinstance(value, dict | list | tuple):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _all_parts(part)
    else:
        yield value


class LearningRate:
    """Tells the rate of the next update. A schedule is compiled where that is what makes asking cheap."""

    def __init__(self, optimizer: Any) -> None:
        # Mixed precision has an optimizer around the one that counts and knows the schedule.
        self._optimizer = getattr(optimizer, "inner_optimizer", optimizer)
        # No public name for the schedule itself: `learning_rate` is what it gives.
        schedule = getattr(self._optimizer, "_learning_rate", None)
        is_schedule = isinstance(schedule, keras.optimizers.schedules.LearningRateSchedule)
        self._schedule = _compiled(schedule) if is_schedule else None

    def now(self) -> float | None:
        """None where there is none, or a schedule of the user's own fails."""
        try:
            if self._schedule is not None:
                return float(self._schedule(self._optimizer.iterations.value))
            return float(self._optimizer.learning_rate)
        except Exception:
            return None


def _compiled(schedule: Any) -> Any:
    """On JAX a schedule that branches is compiled anew each time it is asked outside of a compiled function: 80 ms."""
    if keras.backend.backend() != "jax":
        return schedule
    import jax

    return jax.jit(schedule.__call__)
