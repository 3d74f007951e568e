"""What Keras is told outside of a call: limits for short runs, and the callbacks that it adds by itself."""

import warnings
from typing import Any


def limit_epochs(epochs: int) -> int:
    """No more epochs than `keras.config.set_max_epochs` or KERAS_MAX_EPOCHS allow; said where that is fewer."""
    import keras

    most = keras.config.max_epochs()
    if not most or most >= epochs:
        return epochs
    warnings.warn(f"Limiting epochs to {most}", stacklevel=2)
    return int(most)


def limit_steps(steps: int | None) -> int | None:
    """No more steps in an epoch than `keras.config.set_max_steps_per_epoch` or KERAS_MAX_STEPS_PER_EPOCH allow."""
    import keras

    most = keras.config.max_steps_per_epoch()
    if not most or (steps and most >= steps):
        return steps
    warnings.warn(f"Limiting steps_per_epoch to {most}", stacklevel=2)
    return int(most)


def callback_list(
    callbacks: Any, model: Any, *, verbose: Any, steps: int | None, epochs: int = 1, add_history: bool = False
) -> Any:
    """The callbacks with those that Keras adds; a `CallbackList` of the user's stays as it is, as in Keras."""
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
