"""Models from a function or class that the user names: `build.py:make_model`, `package.module:make_model`,
`keras_hub:BertBackbone`."""

import contextlib
import importlib
import importlib.util
import inspect
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from fitroom.errors import FitroomError, InputError, ModelError, UnknownNameError
from fitroom.keras_model.loading.application import DEFAULT_CLASSES, DEFAULT_IMAGE_SIZE
from fitroom.keras_model.loading.package_class import (
    build_class,
    find_in_package,
    missing_module,
    pip_name,
    read_arguments,
    takes_image_shape,
    unknown_class,
)

if TYPE_CHECKING:
    from fitroom.keras_model.loading.source import ModelSource

_DEFAULTS = {"classes": DEFAULT_CLASSES, "image_size": DEFAULT_IMAGE_SIZE}
_ABOUT_THE_LAYER = "Exception encountered when calling"
_STYLED = re.compile(r"\x1b\[[0-9;]*m")
"""Colours of a terminal, which Keras writes into its errors."""

_FUNCTION = re.compile(r"(?P<place>.+):(?P<name>[A-Za-z_][\w.]*)")


def is_function(text: str) -> bool:
    """Whether the text names a function in a file or module."""
    return _FUNCTION.fullmatch(text) is not None or text.rstrip(":").endswith(".py")


def is_in_file(text: str) -> bool:
    """Whether the text names a function in a file, as `build.py:make_model` does."""
    match = _FUNCTION.fullmatch(text.strip())
    return match is not None and match["place"].endswith(".py")


def call_function(source: "ModelSource") -> Any:
    """Call the function and return its model. What it prints goes to stderr: stdout is for results.

    Parameters called `classes` and `image_size` are passed.
    """
    with contextlib.redirect_stdout(sys.stderr):
        return _call(find_function(source.text.strip()), source)


def takes_image_size(text: str) -> bool:
    """Whether the function takes an `image_size`, or the class the shape of images."""
    with contextlib.redirect_stdout(sys.stderr):
        found = find_function(text.strip())
        return takes_image_shape(found) if inspect.isclass(found) else "image_size" in parameters_of(found)


def find_function(text: str, *, purpose: str = "builds the model", example: str = "make_model") -> Any:
    """Find the function that a text names. It runs the file or imports the module.

    Args:
        text: `file.py:function` or `package.module:function`.
        purpose: what the function is for, for errors.
        example: what it could be called, likewise.
    """
    match = _FUNCTION.fullmatch(text)
    if match is None:
        raise InputError(
            f"{text!r} names a file but no function in it.",
            hint=f"say which function {purpose}: {text.rstrip(':')}:{example}",
        )
    return _find(_load(match["place"]), match["name"], text, purpose)


def _load(place: str) -> ModuleType:
    """The module, from a file or by import."""
    if not place.endswith(".py"):
        # As `python -m` does: what lies in the current folder can be imported.
        sys.path.insert(0, "")
        try:
            return importlib.import_module(place)
        except ModuleNotFoundError as error:
            if error.name and place.split(".")[0] == error.name.split(".")[0]:
                raise missing_module(place) from error
            raise error_of(place, error) from error
        except (Exception, SystemExit) as error:
            raise error_of(place, error) from error
    path = Path(place).resolve()
    if not path.is_file():
        raise InputError(f"There is no file {place!r}.", hint="check the path; it is read from the current folder")
    sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise InputError(f"{place!r} cannot be imported.", hint="it must be a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise error_of(place, error) from error
    return module


def _find(module: ModuleType, name: str, text: str, purpose: str) -> Any:
    found: Any = module
    is_package = not text.rpartition(":")[0].endswith(".py")
    if is_package and (offered := find_in_package(module, name)) is not None:
        return offered
    for part in name.split("."):
        if not hasattr(found, part):
            functions = [key for key, value in vars(module).items() if inspect.isfunction(value)]
            place = text.rpartition(":")[0]
            if is_package and name[:1].isupper():
                raise unknown_class(module, place, name)
            more = f"functions there are: {', '.join(functions)}" if functions else f"{place} defines no function"
            raise UnknownNameError(f"function in {place}", name, functions, more=more)
        found = getattr(found, part)
    if not callable(found):
        raise ModelError(
            f"{text} is of type {type(found).__name__}, not a function.", hint=f"name the function that {purpose}"
        )
    return found


def _call(function: Any, source: "ModelSource") -> Any:
    import keras

    text = source.text.strip()
    given = read_arguments(source.config)
    if source.precision:
        keras.config.set_dtype_policy(source.precision)
    try:
        if inspect.isclass(function):
            image_size = source.offers.get("image_size", source.image_size)
            arguments = _class_arguments(function, source, given)
            model = build_class(function, text, arguments, image_size=image_size, values=source.values)
        else:
            model = function(**_find_arguments(function, source, given))
    except FitroomError:
        raise
    except (Exception, SystemExit) as error:
        raise error_of(text, error) from error
    if not isinstance(model, keras.Model):
        is_class = inspect.isclass(function)
        raise ModelError(
            f"{text} {'is a' if is_class else 'returned'} {type(model).__name__}. Expected: a keras.Model.",
            hint="name a class of models"
            if is_class
            else "return the model from the function, built and, if you like, compiled",
        )
    return model


_ANY_NUMBER = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def _class_arguments(cls: type, source: "ModelSource", given: dict[str, Any]) -> dict[str, Any]:
    """The arguments of the JSON file, with the number of classes where it was given."""
    if source.classes is None:
        return given
    names = [name for name in ("num_classes", "classes") if name in parameters_of(cls)]
    if not names:
        raise InputError(
            f"{source.text} takes no number of classes. Received: --classes {source.classes}.", hint="leave it out"
        )
    return given | {names[0]: source.classes}


def _find_arguments(function: Any, source: "ModelSource", given: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments for a function: those of the JSON file, `classes` and `image_size` where it takes them."""
    parameters = parameters_of(function)
    if source.classes is not None and "classes" not in parameters:
        raise InputError(
            f"{source.text} takes no `classes`. Received: --classes {source.classes}.",
            hint="leave it out: the model brings its own last layer; or write `def make_model(classes):`",
        )
    any_name = any(one.kind is one.VAR_KEYWORD for one in parameters.values())
    if strange := [name for name in given if name not in parameters and not any_name]:
        raise InputError(
            f"{source.text} takes no {', '.join(map(repr, strange))}. Received in {source.config}.",
            hint=f"its parameters: {', '.join(parameters) or 'none'}",
        )
    known = dict(source.offers) | ({} if source.classes is None else {"classes": source.classes})
    required = [name for name, one in parameters.items() if one.default is one.empty and one.kind not in _ANY_NUMBER]
    defaults = {name: number for name, number in _DEFAULTS.items() if name in required}
    numbers = {name: number for name, number in (defaults | known).items() if name in parameters}
    arguments: dict[str, Any] = numbers | {name: value for name, value in given.items() if name not in known}
    if unknown := [name for name in required if name not in arguments]:
        raise InputError(
            f"{source.text} asks for {', '.join(map(repr, unknown))}. Expected: a function that can be called with "
            "nothing, or with `classes` and `image_size`.",
            hint="give them in a JSON file, --config arguments.json, or a default: "
            f"`def {getattr(function, '__name__', 'make_model')}({unknown[0]}=...):`",
        )
    return arguments


def parameters_of(function: Any) -> Mapping[str, inspect.Parameter]:
    """The parameters of a function by name; none where it is one of C."""
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError):  # a callable of C
        return {}


def error_of(place: str, error: BaseException) -> ModelError:
    """The error that says what the user's code raised."""
    if isinstance(error, SystemExit):
        return ModelError(
            f"{place} ended the program: it raised SystemExit({error.code!r}).",
            hint='put what reads arguments or trains under `if __name__ == "__main__":`, and the model in a function',
        )
    hint = "the same command with --debug shows the whole traceback"
    if isinstance(error, ModuleNotFoundError) and error.name:
        hint = f"if it is a package: pip install {pip_name(error.name.partition('.')[0])}; {hint}"
    return ModelError(f"{place} raised {type(error).__name__}: {first_line(error)}", hint=hint)


def first_line(error: BaseException) -> str:
    """What an error says first, without Keras's own lines about the layer that raised it."""
    lines = [line.strip() for line in _STYLED.sub("", str(error)).splitlines() if line.strip()]
    after_keras = [number for number, line in enumerate(lines[:-1], 1) if line.endswith("Error encountered:")]
    said = [line for line in lines[max(after_keras, default=0) :] if not line.startswith(_ABOUT_THE_LAYER)]
    return said[0][:300] if said else ""
