"""A model by what the user typed: a name of `keras.applications`, a `.keras` file, or a function that builds it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from fitroom.errors import InputError

Kind = Literal["function", "file", "name"]


@dataclass(frozen=True, kw_only=True)
class ModelSource:
    """What was typed, and how the model is wanted."""

    text: str
    image_size: int | None = None
    """Height and width of the pictures; None for the model's own."""

    classes: int | None = None
    """Units of the last layer, of a ready-made model or of a function that takes `classes`."""

    offers: Mapping[str, int] = field(default_factory=dict)
    """What a function is told, if it has parameters of these names: `classes`, `image_size`."""

    precision: str | None = None
    """The dtype policy to build it in."""

    unsafe: bool = False
    """Whether a file may bring code of its own, as a Lambda layer does."""

    values: bool = False
    """Whether the weights of a file are read; an estimate needs no more than their shapes."""


def load_model(source: ModelSource) -> Any:
    """The model, built. Ready-made ones come without values, since shapes are all an estimate needs."""
    from fitroom.keras_model.symbolic import symbolic_calls

    kind = kind_of(source.text)
    with symbolic_calls():
        return _load(source, kind)


def _load(source: ModelSource, kind: Kind) -> Any:
    from fitroom.keras_model.loading import application, function, keras_file

    if kind == "function":
        return function.call_function(source)
    if kind == "file":
        _check_is_whole(source)
        return keras_file.read_model(source.text.strip(), unsafe=source.unsafe, values=source.values)
    return application.build_application(source)


def kind_of(text: str) -> Kind:
    """What the text means."""
    from fitroom.keras_model.loading import application, function, keras_file

    text = text.strip()
    if not text:
        raise InputError(
            "The model's name is empty.",
            hint="give a name such as xception, a .keras file, or file.py:function",
        )
    if function.is_function(text):
        return "function"
    # A name comes before a file or folder that happens to be called the same, as checkpoints often are.
    return "file" if keras_file.is_keras_file(text) and not application.is_application(text) else "name"


def check_model(text: str) -> None:
    """Refuse a name that Keras does not have and a file that is not there, without importing Keras."""
    from fitroom.keras_model.loading import application, function

    kind = kind_of(text)
    file = Path(text.strip() if kind == "file" else text.strip().rpartition(":")[0])
    if kind == "name":
        application.application_name(text.strip())
    elif (kind == "file" or function.is_in_file(text)) and not file.exists():
        raise InputError(f"There is no file {str(file)!r}.", hint="check the path; it is read from the current folder")


def _check_is_whole(source: ModelSource) -> None:
    if source.classes is not None:
        raise InputError(
            f"--classes is for ready-made models by name. Received: --classes {source.classes} for {source.text!r}.",
            hint="leave it out: the model brings its own last layer",
        )
