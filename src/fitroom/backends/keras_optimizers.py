"""The names of Keras's optimizers."""

from typing import Any

from fitroom.errors import UnknownNameError


def optimizer_class(name: str) -> Any:
    """The class of that name, in any case."""
    import keras

    known = {one.lower(): one for one in dir(keras.optimizers) if one[0].isupper() and one != "Optimizer"}
    if name.lower() not in known:
        raise UnknownNameError("optimizer", name, known, more="any of keras.optimizers")
    return getattr(keras.optimizers, known[name.lower()])
