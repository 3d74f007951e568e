"""Ready-made models of `keras.applications`, by name."""

import inspect
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from fitroom.errors import ModelError, UnknownNameError
from fitroom.keras_model.private import exported_names
from fitroom.keras_model.twin import without_values

if TYPE_CHECKING:
    from fitroom.keras_model.loading.source import ModelSource

DEFAULT_CLASSES = 5
DEFAULT_IMAGE_SIZE = 224
_OF_ANY_SIZE = ("MobileNetV3Large", "MobileNetV3Small")
"""Models that leave the image size open where none is given; their weights are for DEFAULT_IMAGE_SIZE."""


def application_names() -> dict[str, Any]:
    """The builders of `keras.applications` by their names."""
    import keras

    return {
        name: builder
        for name, builder in vars(keras.applications).items()
        if inspect.isfunction(builder) and "weights" in inspect.signature(builder).parameters
    }


def is_application(text: str) -> bool:
    """Whether the text is a name of `keras.applications`, in any spelling."""
    return _plain(text) in map(_plain, _names())


def build_application(source: "ModelSource") -> Any:
    """Build a model by its name in any spelling ("xception", "ResNet-50", "efficientnet_b0"), without values."""
    name = application_name(source.text)
    size = source.image_size or (DEFAULT_IMAGE_SIZE if name in _OF_ANY_SIZE else None)
    shape = (size, size, 3) if size else None
    with without_values():
        return _build(name, source, weights=None, input_shape=shape, classes=source.classes or DEFAULT_CLASSES)


def build_features(source: "ModelSource", images: Any, *, weights: str | None) -> Any:
    """Build a model by its name without its classifier, with values: from symbolic `images` to one vector each."""
    options = {"input_tensor": images, "input_shape": tuple(images.shape[1:])}
    name = application_name(source.text)
    return _build(name, source, weights=weights, include_top=False, pooling="avg", **options)


def application_name(text: str) -> str:
    """The name as Keras spells it. An unknown one is refused without importing Keras."""
    names = _names()
    name = {_plain(name): name for name in names}.get(_plain(text))
    if name is None:
        raise UnknownNameError(
            "model",
            text,
            names,
            more="a model is a name of keras.applications, a .keras file, or file.py:function",
        )
    return name


def _names() -> Iterable[str]:
    return exported_names("applications") or application_names()


def _build(name: str, source: "ModelSource", **options: Any) -> Any:
    import keras

    if source.precision:
        keras.config.set_dtype_policy(source.precision)
    try:
        return application_names()[name](**options)
    except ValueError as error:
        size = source.image_size
        at_size = f" at {size} x {size}" if size else ""
        raise ModelError(
            f"{name} cannot be built{at_size}: {str(error).strip()}",
            hint="give another --image-size, or leave it out for the size the model was made for",
        ) from error


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())
