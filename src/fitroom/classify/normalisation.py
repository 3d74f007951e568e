"""What a ready-made model does to pictures before it sees them, as layers within the model.

Keras has a function `preprocess_input` beside each ready-made model. As layers, the saved model takes pictures as they
are (0 to 255), wherever it is loaded, and they travel to the device in one byte a value.
"""

import sys
from dataclasses import dataclass
from typing import Any

from fitroom.errors import ModelError


@dataclass(frozen=True, kw_only=True)
class Normalisation:
    """Each channel times a scale plus an offset, the channels in their order or in reverse."""

    scale: tuple[float, ...]
    offset: tuple[float, ...]
    reverses: bool
    """Blue, green, red, as networks that come from Caffe have it."""

    @property
    def is_nothing(self) -> bool:
        """For models that normalise by themselves."""
        return not self.reverses and set(self.scale) == {1.0} and set(self.offset) == {0.0}

    def __call__(self, pictures: Any) -> Any:
        """Layers on a symbolic tensor. In float32 whatever the model's precision: here 255 levels are told apart."""
        import keras

        if self.is_nothing:
            return pictures
        if self.reverses:
            pictures = keras.ops.flip(pictures, axis=-1)
        rescaled = keras.layers.Rescaling(list(self.scale), list(self.offset), dtype="float32", name="normalisation")
        return rescaled(pictures)


def normalisation_of(name: str) -> Normalisation:
    """What `preprocess_input` of a ready-made model does, found by asking it about black and the three colours."""
    import numpy as np

    asked = np.concatenate([np.zeros((1, 3)), 255.0 * np.eye(3)]).reshape(1, 4, 1, 3).astype("float32")
    black, *colours = np.asarray(_preprocess_input(name)(asked.copy(), data_format="channels_last")).reshape(4, 3)
    slopes = (np.stack(colours) - black) / 255.0
    reverses = bool(abs(slopes[0, 2]) > abs(slopes[0, 0]))
    ordered = slopes[::-1] if reverses else slopes
    if not np.allclose(ordered, np.diag(np.diag(ordered)), atol=1e-7):
        raise ModelError(
            f"`preprocess_input` of {name} mixes the channels, which fitroom does not know.",
            hint="build the model with its own normalisation in a function, and give it as file.py:function",
        )
    return Normalisation(scale=_floats(np.diag(ordered)), offset=_floats(black), reverses=reverses)


def _preprocess_input(name: str) -> Any:
    """The function beside the model's own, in the same module."""
    from fitroom.keras_model.loading.application import application_names

    return sys.modules[application_names()[name].__module__].preprocess_input


def _floats(values: Any) -> tuple[float, ...]:
    return tuple(float(f"{value:.7g}") for value in values)
