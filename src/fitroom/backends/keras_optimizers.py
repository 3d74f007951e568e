"""The names of Keras's optimizers, and those that a model holds."""

from typing import Any

from fitroom.errors import UnknownNameError


def optimizer_class(name: str) -> Any:
    """The class of that name, in any case."""
    import keras

    known = {one.lower(): one for one in dir(keras.optimizers) if one[0].isupper() and one != "Optimizer"}
    if name.lower() not in known:
        raise UnknownNameError("optimizer", name, known, more="any of keras.optimizers")
    return getattr(keras.optimizers, known[name.lower()])


def helpers_of(model: Any) -> list[Any]:
    """Optimizers that a model holds beside the one it is compiled with, as one that trains two networks does."""
    import keras

    held = [value for name, value in vars(model).items() if name not in ("optimizer", "_optimizer")]
    nested = [part for value in held if isinstance(value, (list, dict)) for part in _parts(value)]
    found = [value for value in (*held, *nested) if isinstance(value, keras.optimizers.Optimizer)]
    helpers = {id(helper): helper for helper in found}  # on TensorFlow Keras has them twice
    helpers.pop(id(getattr(model, "optimizer", None)), None)
    return list(helpers.values())


def _parts(value: Any) -> list[Any]:
    return list(value.values()) if isinstance(value, dict) else list(value)
