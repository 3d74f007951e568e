"""The input normalisation of a model of keras.applications, as layers within the model.

Keras has a function `preprocess_input` beside each of these models. With layers instead, the saved model takes images
as they are (0 to 255) wherever it is loaded, and they are transferred to the device with one byte per value.
"""

import sys
from dataclasses import dataclass
from typing import Any

from fitroom.errors import ModelError


@dataclass(frozen=True, kw_only=True)
class Normalisation:
    """Each channel is multiplied by a scale and an offset is added; the order of channels may be reversed."""

    scale: tuple[float, ...]
    offset: tuple[float, ...]
    reverses: bool
    """Whether the model takes BGR, as those from Caffe do."""

    @property
    def is_nothing(self) -> bool:
        """Whether it changes nothing, as for models that have normalisation layers of their own."""
        return not self.reverses and set(self.scale) == {1.0} and set(self.offset) == {0.0}

    def __call__(self, images: Any) -> Any:
        """Add the layers to a symbolic tensor. They compute in float32, so that all 256 levels stay distinct."""
        import keras

        if self.is_nothing:
            return images
        if self.reverses:
            images = keras.ops.flip(images, axis=-1)
        rescaled = keras.layers.Rescaling(list(self.scale), list(self.offset), dtype="float32", name="normalisation")
        return rescaled(images)


def find_normalisation(name: str) -> Normalisation:
    """What `preprocess_input` of a model does, found by calling it with black and the three pure colours."""
    import numpy as np

    colours_in = np.concatenate([np.zeros((1, 3)), 255.0 * np.eye(3)]).reshape(1, 4, 1, 3).astype("float32")
    black, *colours = np.asarray(_preprocess_input(name)(colours_in.copy(), data_format="channels_last")).reshape(4, 3)
    slopes = (np.stack(colours) - black) / 255.0
    reverses = bool(abs(slopes[0, 2]) > abs(slopes[0, 0]))
    ordered = slopes[::-1] if reverses else slopes
    if not np.allclose(ordered, np.diag(np.diag(ordered)), atol=1e-7):
        raise ModelError(
            f"`preprocess_input` of {name} mixes the channels, which fitroom does not support.",
            hint="build the model with its own normalisation in a function, and give it as file.py:function",
        )
    return Normalisation(scale=_floats(np.diag(ordered)), offset=_floats(black), reverses=reverses)


def _preprocess_input(name: str) -> Any:
    """The function `preprocess_input` in the module of the model."""
    from fitroom.keras_model.loading.application import application_names

    return sys.modules[application_names()[name].__module__].preprocess_input


def _floats(values: Any) -> tuple[float, ...]:
    return tuple(float(f"{value:.7g}") for value in values)
