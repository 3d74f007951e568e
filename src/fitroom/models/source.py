"""A model by what the user typed: a name of `keras.applications`, a `.keras` file, or a function that builds it."""

from dataclasses import dataclass
from typing import Any

from fitroom.errors import InputError


@dataclass(frozen=True, kw_only=True)
class ModelSource:
    """What was typed, and how the model is wanted."""

    text: str
    image_size: int | None = None
    """Height and width of the pictures; None for the model's own."""

    classes: int | None = None
    """Units of the last layer of a ready-made model."""

    precision: str | None = None
    """The dtype policy to build it in."""

    unsafe: bool = False
    """Whether a file may bring code of its own, as a Lambda layer does."""


def load_model(source: ModelSource) -> Any:
    """The model, built. Ready-made ones and files come without values, since shapes are all an estimate needs."""
    from fitroom.models import application, function, keras_file

    text = source.text.strip()
    if not text:
        raise InputError(
            "The model's name is empty.",
            hint="give a name such as xception, a .keras file, or file.py:function",
        )
    if function.is_function(text):
        _check_is_whole(source)
        return function.call_function(text, source.precision)
    # A name comes before a file or folder that happens to be called the same, as checkpoints often are.
    if keras_file.is_keras_file(text) and not application.is_application(text):
        _check_is_whole(source)
        return keras_file.read_model(text, unsafe=source.unsafe)
    return application.build_application(source)


def _check_is_whole(source: ModelSource) -> None:
    if source.classes is not None:
        raise InputError(
            f"--classes is for ready-made models by name. Received: --classes {source.classes} for {source.text!r}.",
            hint="leave it out: the model brings its own last layer",
        )
