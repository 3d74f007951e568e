"""Models that a function returns before Keras knows their shapes, as subclassed ones are until they are called."""

import warnings
from typing import Any

from fitroom.errors import ModelError
from fitroom.keras_model.loading.function import first_line

_IN_THE_FUNCTION = "or call the model on a batch in the function that makes it"


def build_for_sizes(model: Any, image_size: int | None, sequence_length: int | None) -> None:
    """Build a model that is not built, for color images of a size or sequences of a length."""
    if model.built:
        return
    import keras

    if image_size is not None:
        sample = keras.Input((image_size, image_size, 3), name="images")
    elif sequence_length is not None:
        sample = keras.Input((sequence_length,), dtype="int32", name="tokens")
    else:
        raise ModelError(
            f"The model {model.name!r} is not built: the shape of its input is unknown.",
            hint=f"give --image-size for color images or --sequence-length for tokens, {_IN_THE_FUNCTION}",
        )
    try:
        with warnings.catch_warnings(action="ignore", category=UserWarning):  # Keras's, of what it raises next
            model(sample)
    except Exception as error:  # whatever the layers of the user raise
        raise ModelError(
            f"The model {model.name!r} cannot take {sample.name} of shape {tuple(sample.shape)}. It raised "
            f"{type(error).__name__}: {first_line(error)}",
            hint=f"another size, {_IN_THE_FUNCTION}",
        ) from error


def is_built_for(model: Any, image_size: int) -> bool:
    """Whether a model without a `keras.Input` of its own takes color images of this size."""
    if getattr(model, "inputs", None):
        return False
    shape = (model.get_build_config() or {}).get("input_shape") or ()
    return tuple(shape) == (None, image_size, image_size, 3)
