"""Keras's settings for data, where Keras is imported, and what its DataLoader draws. No framework is imported here."""

import sys


def floatx() -> str:
    """The dtype in which a model gets arrays of floats."""
    keras = sys.modules.get("keras")
    return "float32" if keras is None else str(keras.config.floatx())


def keras_backend() -> str | None:
    """The framework that batches are made for."""
    keras = sys.modules.get("keras")
    return None if keras is None else str(keras.config.backend())


def draw_as_loader() -> None:
    """Draw the number that a DataLoader draws for each of its iterators; nothing on other backends.

    On PyTorch Keras reads all data through a DataLoader. Without these draws dropout masks would differ from those of
    plain Keras. Keras makes an iterator to build a model, for each pass, and once more when a pass of known length is
    over.
    """
    if keras_backend() == "torch":
        torch = sys.modules["torch"]
        torch.empty((), dtype=torch.int64).random_()
