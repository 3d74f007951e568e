"""Settings of Keras that apply to every call: limits of epochs and steps, and the callbacks that it adds by itself."""

import warnings
from typing import Any


def limit_epochs(epochs: int) -> int:
    """Limit epochs to `keras.config.set_max_epochs` or KERAS_MAX_EPOCHS, with a warning where that is fewer."""
    import keras

    most = keras.config.max_epochs()
    if not most or most >= epochs:
        return epochs
    warnings.warn(f"Limiting epochs to {most}", stacklevel=2)
    return int(most)


def limit_steps(steps: int | None) -> int | None:
    """Limit the steps of an epoch to `keras.config.set_max_steps_per_epoch` or KERAS_MAX_STEPS_PER_EPOCH."""
    import keras

    most = keras.config.max_steps_per_epoch()
    if not most or (steps and most >= steps):
        return steps
    warnings.warn(f"Limiting steps_per_epoch to {most}", stacklevel=2)
    return int(most)


def callback_list(
    callbacks: Any, model: Any, *, verbose: Any, steps: int | None, epochs: int = 1, add_history: bool = False
) -> Any:
    """Make a `CallbackList` with the callbacks that Keras adds; the user's own list stays as it is, as in Keras."""
    import keras

    if isinstance(callbacks, keras.callbacks.CallbackList):
        return callbacks
    return keras.callbacks.CallbackList(
        callbacks,
        add_history=add_history,
        add_progbar=verbose != 0,
        verbose=verbose,
        epochs=epochs,
        steps=steps,
        model=model,
    )
