"""A model by what the user typed: a name of `keras.applications`, a `.keras` file, a preset's folder, or a function or
class that builds it."""

import importlib
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from fitroom.activity import activity
from fitroom.errors import InputError, ModelError

Kind = Literal["function", "file", "preset", "name"]


@dataclass(frozen=True, kw_only=True)
class ModelSource:
    """What the user typed, and how the model should be built."""

    text: str
    image_size: int | None = None
    """Height and width of the images; None for the model's own."""

    sequence_length: int | None = None
    """Length of the input sequences, for a model that is not built."""

    classes: int | None = None
    """Units of the last layer, of a ready-made model or of a function that takes `classes`."""

    offers: Mapping[str, int] = field(default_factory=dict)
    """Arguments for a function that has parameters of these names: `classes`, `image_size`."""

    precision: str | None = None
    """The dtype policy to build it in."""

    unsafe: bool = False
    """Whether a file may bring code of its own, as a Lambda layer does."""

    config: str | None = None
    """A JSON file with the arguments for a class or function."""

    values: bool = False
    """Whether the weights get values, those of a file where it is one; an estimate needs no more than their shapes."""


def load_model(source: ModelSource) -> Any:
    """Load a model, built. Ready-made ones come without values, since an estimate needs shapes only."""
    from fitroom.keras_model.input_batch import symbolic_calls

    kind = kind_of(source.text)
    if "keras" not in sys.modules:
        with activity("importing Keras"):
            importlib.import_module("keras")
    with symbolic_calls():
        model = _load(source, kind)
    _check_sequence_length(model, source.sequence_length)
    return model


def _load(source: ModelSource, kind: Kind) -> Any:
    from fitroom.keras_model.loading import application, function, keras_file, preset
    from fitroom.keras_model.loading.unbuilt import build_for_sizes

    if kind == "function":
        model = function.call_function(source)
        build_for_sizes(model, source.image_size, source.sequence_length)
        return model
    check_takes_config(source.text, source.config)
    if kind == "preset":
        _check_file_options(source)
        return preset.read_preset(source.text.strip())
    if kind == "file":
        _check_file_options(source)
        return keras_file.read_model(source.text.strip(), unsafe=source.unsafe, values=source.values)
    return application.build_application(source)


def kind_of(text: str) -> Kind:
    """Whether the text names a function or class, a file, a preset's folder, or a model of `keras.applications`."""
    from fitroom.keras_model.loading import application, function, keras_file, preset

    text = text.strip()
    if not text:
        raise InputError(
            "The model's name is empty.",
            hint="give a name such as xception, a .keras file, or file.py:function",
        )
    if function.is_function(text):
        return "function"
    if preset.is_preset(text):
        return "preset"
    # A name comes before a file or folder that happens to be called the same, as checkpoints often are.
    return "file" if keras_file.is_keras_file(text) and not application.is_application(text) else "name"


def check_model(text: str, config: str | None = None) -> None:
    """Refuse a name that Keras does not have and a file or package that is not there, without importing Keras."""
    from fitroom.keras_model.loading import application, function, package_class

    kind = kind_of(text)
    file = Path(text.strip() if kind == "file" else text.strip().rpartition(":")[0])
    check_takes_config(text, config)
    package_class.read_arguments(config)
    if kind == "function" and not function.is_in_file(text):
        package_class.check_package(text.strip().rpartition(":")[0])
    if kind == "name":
        application.application_name(text.strip())
    elif (kind == "file" or function.is_in_file(text)) and not file.exists():
        raise InputError(f"There is no file {str(file)!r}.", hint="check the path; it is read from the current folder")


def check_takes_config(text: str, config: str | None) -> None:
    """Refuse arguments for what takes none."""
    if config is not None and kind_of(text) != "function":
        raise InputError(
            f"--config is for a class of a package or a function. Received: --config {config} for {text!r}.",
            hint="such as keras_hub:BertBackbone --config arguments.json",
        )


def _check_sequence_length(model: Any, length: int | None) -> None:
    """Raise ModelError for a length that no input of the model leaves open, or was built for."""
    shapes = [tuple(each.shape) for each in getattr(model, "inputs", None) or []]  # a subclassed model may know none
    if length and shapes and not any(len(shape) in (2, 3) and shape[1] in (None, length) for shape in shapes):
        raise ModelError(
            f"The model {model.name!r} leaves no sequence length open: its input is {', '.join(map(str, shapes))}. "
            f"Received: --sequence-length {length}.",
            hint="leave it out: the model brings its own shape",
        )


def _check_file_options(source: ModelSource) -> None:
    if source.classes is not None:
        raise InputError(
            f"--classes is for ready-made models by name. Received: --classes {source.classes} for {source.text!r}.",
            hint="leave it out: the model brings its own last layer",
        )


@dataclass(frozen=True, kw_only=True)
class ResizableModel:
    """A model, and a function that rebuilds it for another image size; None where it takes other inputs than images."""

    model: Any
    rebuild: Callable[[int], Any] | None


def load_resizable(source: ModelSource) -> ResizableModel:
    """Load a model that can be resized: a name or a function of `image_size` is built again, others get a twin."""
    from fitroom.keras_model.loading.function import takes_image_size

    kind = kind_of(source.text)
    if kind == "name":
        return _build_resizable(source.image_size, lambda size: load_model(replace(source, image_size=size)))
    if kind == "function" and takes_image_size(source.text):
        return _build_resizable(source.image_size, lambda size: load_model(replace(source, offers=_offers(size))))
    return _make_twin_resizable(source)


def _build_resizable(size: int | None, build: Callable[[int | None], Any]) -> ResizableModel:
    return ResizableModel(model=build(size), rebuild=build)


def _offers(size: int | None) -> dict[str, int]:
    return {"image_size": size} if size else {}


def _make_twin_resizable(source: ModelSource) -> ResizableModel:
    from fitroom.keras_model.loading.unbuilt import is_built_for
    from fitroom.keras_model.twin import twin_of_size

    model, wanted = load_model(source), source.image_size
    if wanted and is_built_for(model, wanted):
        return _build_resizable(wanted, lambda size: load_model(replace(source, image_size=size)))
    if not _takes_images(model):
        if wanted:
            raise ModelError(
                f"The model {model.name!r} takes no images, or more than images. Received: image size {wanted}.",
                hint="leave --image-size out",
            )
        return ResizableModel(model=model, rebuild=None)
    if wanted and tuple(model.inputs[0].shape[1:3]) != (wanted, wanted):
        model = twin_of_size(model, wanted)
    return ResizableModel(model=model, rebuild=lambda size: twin_of_size(model, size))


def _takes_images(model: Any) -> bool:
    inputs = getattr(model, "inputs", None) or []  # a subclassed model may know none
    return len(inputs) == 1 and len(inputs[0].shape) == 4
