"""What Keras's way through data draws from PyTorch's generator, from which dropout draws too."""

import sys

from fitroom.train.sources.settings import keras_backend


def draw_as_loader() -> None:
    """Draw the number that a DataLoader draws for each of its iterators; nothing on other backends.

    On PyTorch Keras reads all data through a DataLoader. Without these draws the masks of dropout would be others than
    those of plain Keras. An iterator is made to build a model, for each pass, and for a next one when a pass of known
    length is over.
    """
    if keras_backend() == "torch":
        torch = sys.modules["torch"]
        torch.empty((), dtype=torch.int64).random_()
