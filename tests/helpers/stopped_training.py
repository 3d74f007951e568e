"""A training that ends by an error of the user's after a number of batches."""

import keras


class Stop(Exception):  # noqa: N818
    """Ends a training as an error of the user's would."""


class StopAt(keras.callbacks.Callback):
    def __init__(self, number):
        super().__init__()
        self.number = number

    def on_train_batch_end(self, batch, logs=None):
        self.number -= 1
        if not self.number:
            raise Stop
