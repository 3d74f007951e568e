"""Ready-made models of `keras.applications`, by name."""

import inspect
import re
from typing import TYPE_CHECKING, Any

from fitroom.backends.prepared import without_values
from fitroom.errors import ModelError, UnknownNameError

if TYPE_CHECKING:
    from fitroom.models.source import ModelSource

DEFAULT_CLASSES = 5
DEFAULT_IMAGE_SIZE = 224
_OF_ANY_SIZE = ("MobileNetV3Large", "MobileNetV3Small")
"""Models that leave the size of pictures open where none is given; their weights are for DEFAULT_IMAGE_SIZE."""


def application_names() -> dict[str, Any]:
    """The builders of `keras.applications` by their names."""
    import keras

    return {
        name: builder
        for name, builder in vars(keras.applications).items()
        if inspect.isfunction(builder) and "weights" in inspect.signature(builder).parameters
    }


def is_application(text: str) -> bool:
    """Whether the text is one of their names, in any spelling."""
    return _plain(text) in map(_plain, application_names())


def build_application(source: "ModelSource") -> Any:
    """The model by its name in any spelling: "xception", "ResNet-50", "efficientnet_b0"."""
    import keras

    builders = application_names()
    by_spelling = {_plain(name): name for name in builders}
    name = by_spelling.get(_plain(source.text))
    if name is None:
        raise UnknownNameError(
            "model",
            source.text,
            builders,
            more="a model is a name of keras.applications, a .keras file, or file.py:function",
        )
    size = source.image_size or (DEFAULT_IMAGE_SIZE if name in _OF_ANY_SIZE else None)
    shape = (size, size, 3) if size else None
    if source.precision:
        keras.config.set_dtype_policy(source.precision)
    try:
        with without_values():
            return builders[name](weights=None, input_shape=shape, classes=source.classes or DEFAULT_CLASSES)
    except ValueError as error:
        pictures = f" at {size} x {size}" if size else ""
        raise ModelError(
            f"{name} cannot be built{pictures}: {str(error).strip()}",
            hint="give another --image-size, or leave it out for the size the model was made for",
        ) from error


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())
