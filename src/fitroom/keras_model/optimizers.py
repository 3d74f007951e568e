"""Keras's optimizers: by name, those that a model holds, and the learning rate of the next update.

A wrong name is refused without importing Keras.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from fitroom.errors import UnknownNameError
from fitroom.keras_model.private import exported_names, learning_rate_setting

SLOTS = (
    dict.fromkeys(("adafactor", "sgd"), 0)
    | dict.fromkeys(("adagrad", "lion", "muon", "rmsprop"), 1)
    | dict.fromkeys(("adadelta", "adam", "adamax", "adamw", "ftrl", "nadam"), 2)
)
"""Numbers that an optimizer of that name keeps for each weight by default; Adafactor keeps a row and a column of each
matrix. For orders of candidates and interpolation: an estimate creates the real optimizer."""


def optimizer_class(name: str) -> Any:
    """The optimizer class of that name, in upper or lower case."""
    import keras

    return getattr(keras.optimizers, _find_name(name, dir(keras.optimizers)))


def check_optimizer(name: str | None) -> None:
    """Refuse a name that Keras does not have, without importing Keras. None is the model's own."""
    if name is not None and (names := exported_names("optimizers")):
        _find_name(name, names)


def _find_name(name: str, names: Iterable[str]) -> str:
    """The name as Keras spells it."""
    known = {one.lower(): one for one in names if one[0].isupper() and one != "Optimizer"}
    if name.lower() not in known:
        raise UnknownNameError("optimizer", name, known, more="any of keras.optimizers")
    return known[name.lower()]


def extra_optimizers(model: Any) -> list[Any]:
    """Optimizers that a model holds beside the one it is compiled with, as one that trains two networks does."""
    import keras

    held = [value for name, value in vars(model).items() if name not in ("optimizer", "_optimizer")]
    found = [value for value in _flatten(held) if isinstance(value, keras.optimizers.Optimizer)]
    extra = {id(optimizer): optimizer for optimizer in found}  # on TensorFlow Keras has them twice
    extra.pop(id(getattr(model, "optimizer", None)), None)
    return list(extra.values())


def _flatten(value: Any) -> Iterator[Any]:
    if isinstance(value, dict | list | tuple):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _flatten(part)
    else:
        yield value


class LearningRate:
    """Tells the learning rate of the next update. A schedule is compiled where that makes asking cheap."""

    def __init__(self, optimizer: Any) -> None:
        import keras

        # Mixed precision has an optimizer around the one that counts and knows the schedule.
        self._optimizer = getattr(optimizer, "inner_optimizer", optimizer)
        schedule = learning_rate_setting(self._optimizer)
        is_schedule = isinstance(schedule, keras.optimizers.schedules.LearningRateSchedule)
        self._schedule = _compile(schedule) if is_schedule else None

    def now(self) -> float | None:
        """The rate, or None where there is none, or a schedule of the user's own fails."""
        try:
            if self._schedule is not None:
                return float(self._schedule(self._optimizer.iterations.value))
            return float(self._optimizer.learning_rate)
        except Exception:
            return None


def _compile(schedule: Any) -> Any:
    """On JAX a schedule that branches is compiled again at each call outside of a compiled function: 80 ms."""
    import keras

    if keras.backend.backend() != "jax":
        return schedule
    import jax

    return jax.jit(schedule.__call__)
