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


def draw_as_loader() -> None:
    """Draw the number that a DataLoader draws for each of its iterators; nothing on other backends.

    On PyTorch Keras reads all data through a DataLoader. Without these draws the masks of dropout would be others than
    those of plain Keras. An iterator is made to build a model, for each pass, and for a next one when a pass of known
    length is over.
    """
    if keras_backend() == "torch":
        torch = sys.modules["torch"]
        torch.empty((), dtype=torch.int64).random_()
