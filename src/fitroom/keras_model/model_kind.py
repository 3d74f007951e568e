"""What kind of model it is, by what its layers do: estimates of one kind are wrong in like ways."""

from typing import Any, Literal

from fitroom.keras_model.private import all_layers

ModelKind = Literal["convolutions", "attention", "convolutions and attention", "recurrent layers", "other layers"]

_PATCHES = 1
"""A model with attention and no more convolutions than these has them to cut images into patches."""


def model_kind(model: Any) -> ModelKind:
    """Return the kind of a built model.

    Layers of other packages count by the names of their classes, as "MultiHeadLatentAttention" tells what it is.
    """
    import keras

    layers = all_layers(model)
    if any(isinstance(layer, keras.layers.RNN) for layer in layers):
        return "recurrent layers"
    names = [type(layer).__name__.lower() for layer in layers]
    attends = any("attention" in name for name in names)
    convolutions = sum("conv" in name for name in names)
    if attends:
        return "convolutions and attention" if convolutions > _PATCHES else "attention"
    return "convolutions" if convolutions else "other layers"
