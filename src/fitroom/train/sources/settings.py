"""What Keras is set to, where it is in use; data by themselves do not start a framework."""

import sys


def floatx() -> str:
    """The dtype that arrays of floats are given to a model in."""
    keras = sys.modules.get("keras")
    return "float32" if keras is None else str(keras.config.floatx())


def keras_backend() -> str | None:
    """The framework that batches are made for."""
    keras = sys.modules.get("keras")
    return None if keras is None else str(keras.config.backend())
