"""The names of Keras's optimizers, and those that a model holds."""

from collections.abc import Iterable, Iterator
from typing import Any

from fitroom.backends.keras_names import exported_names
from fitroom.errors import UnknownNameError


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
