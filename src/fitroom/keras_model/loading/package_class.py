"""Classes of installed packages, built from constructor arguments in a JSON file: `keras_hub:BertBackbone`.

The file holds one JSON object, the arguments by name. An argument that is itself an object of a class is written as
`{"class": "BertBackbone", "config": {...}}`, where the class is looked for in the same package unless it is written
`package:Class`; what Keras serialises (`class_name`, `config`, `module`) is taken as well.
"""

import importlib
import importlib.util
import inspect
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from fitroom.errors import FitroomError, InputError, ModelError, UnknownNameError, message_of
from fitroom.keras_model.twin import without_values

_LARGEST_FILE_BYTES = 16 * 1024**2
_PIP_NAMES = {"keras_hub": "keras-hub", "keras_cv": "keras-cv", "keras_nlp": "keras-nlp", "cv2": "opencv-python"}
_IMAGE_SHAPES = ("image_shape", "input_shape")
_WEIGHTS, _COMPILE = "weights", "compile"


def read_arguments(file: str | None) -> dict[str, Any]:
    """The constructor arguments in a JSON file; none where no file is given."""
    if file is None:
        return {}
    path = Path(file)
    if not path.is_file():
        raise InputError(f"There is no file {file!r} for --config.", hint="check the path; it holds a JSON object")
    if path.stat().st_size > _LARGEST_FILE_BYTES:
        raise InputError(f"{file} is no list of arguments: it has {path.stat().st_size:,} bytes.")
    try:
        found = json.loads(path.read_text("utf-8"))
    except (ValueError, RecursionError, OSError) as error:
        raise InputError(
            f"{file} is not valid JSON: {str(error) or type(error).__name__}", hint='such as {"num_layers": 2}'
        ) from error
    if not isinstance(found, dict):
        raise InputError(
            f"{file} must hold a JSON object with the arguments by name. Received: a {type(found).__name__}.",
            hint='such as {"num_layers": 2}',
        )
    inner = found.get("config")
    # The whole serialised object, as `config.json` of a preset has it: the class is named on the command line.
    return inner if "class_name" in found and isinstance(inner, dict) else found


def check_package(place: str) -> None:
    """Raise InputError where the package of a module is not installed, without importing it."""
    top = place.partition(".")[0]
    try:
        is_there = importlib.util.find_spec(top) is not None or Path(top).is_dir() or Path(f"{top}.py").is_file()
    except (ImportError, ValueError):
        is_there = False
    if not is_there:
        raise missing_module(place)


def missing_module(place: str) -> InputError:
    """The error for a module that cannot be imported because it is not there."""
    top = place.partition(".")[0]
    return InputError(
        f"There is no module {place!r}.",
        hint=f"if it is a package: pip install {pip_name(top)}; for a file write {place.replace('.', '/')}.py:function",
    )


def pip_name(module: str) -> str:
    """What to give to pip for a module, by its name."""
    return _PIP_NAMES.get(module, module.replace("_", "-"))


def find_in_package(module: ModuleType, name: str) -> Any:
    """A class or function of a module, or of the modules that it offers, such as `keras_hub.models`; None if none."""
    for place in _public_modules(module):
        if inspect.isclass(found := getattr(place, name, None)) or inspect.isfunction(found):
            return found
    return None


def class_names(module: ModuleType) -> list[str]:
    """The models that a module and those that it offers have, by name."""
    import keras

    return sorted(
        {
            name
            for place in _public_modules(module)
            for name, value in vars(place).items()
            if inspect.isclass(value) and issubclass(value, keras.Model) and not name.startswith("_")
        }
    )


def build_class(
    cls: type, text: str, arguments: Mapping[str, Any], *, image_size: int | None, values: bool = False
) -> Any:
    """The model of a class, without values where the class can be built so.

    Args:
        cls: the class.
        text: what the user typed for it, for errors.
        arguments: the constructor arguments, as the JSON file has them.
        image_size: height and width of the images; None for what the arguments or the class say.
        values: whether the weights get values, for training; an estimate needs none.
    """
    parameters = _parameters(cls)
    given = dict(arguments)
    if image_size is not None:
        given |= _shape_arguments(text, parameters, given, image_size)
    if parameters.get(_WEIGHTS) is not None and _WEIGHTS not in given:
        given[_WEIGHTS] = None  # an estimate needs no values: nothing is downloaded
    _check_arguments(cls, text, given)
    package = text.partition(":")[0]

    def build(**more: Any) -> Any:
        return cls(**{name: _resolve(value, package) for name, value in given.items()}, **more)

    try:
        return build() if values else build_without_values(build, compiles=_compiles(cls) and _COMPILE not in given)
    except FitroomError:
        raise
    except (Exception, SystemExit) as error:
        raise ModelError(
            f"{text} cannot be built: {_first_line(error)}",
            hint=f"its constructor: {_signature(cls)}; --debug shows the whole traceback",
        ) from error


def takes_image_shape(cls: type) -> bool:
    """Whether a class can be built for another image size by its arguments."""
    return any(name in _parameters(cls) for name in _IMAGE_SHAPES)


def build_without_values(build: Callable[..., Any], *, compiles: bool = False) -> Any:
    """What `build` returns, its variables without values where its constructors do not compute with them.

    Args:
        build: makes the model; with `compile=False`, where `compiles` says so, a model that is not compiled.
        compiles: whether the model compiles itself, as tasks of KerasHub do: an optimizer needs values.
    """
    try:
        with without_values():
            model = build(**({_COMPILE: False} if compiles else {}))
    except Exception:  # a constructor may compute with values; what is wrong with the arguments shows again
        return build()
    if compiles:
        model.compile()
    return model


def _compiles(cls: type) -> bool:
    """Whether the constructor of a class, or of one that it is made of, takes `compile`."""
    return any(_COMPILE in _parameters(each) for each in cls.__mro__)


def _public_modules(module: ModuleType) -> Iterator[ModuleType]:
    """The module itself and the modules of the same package among its public attributes."""
    yield module
    top = module.__name__.partition(".")[0]
    for name, value in vars(module).items():
        is_public = inspect.ismodule(value) and not name.startswith("_") and name != "src"
        if is_public and value is not module and value.__name__.partition(".")[0] == top:
            yield value


def _parameters(cls: type) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(cls).parameters
    except (TypeError, ValueError):
        return {}


def _shape_arguments(
    text: str, parameters: Mapping[str, inspect.Parameter], given: Mapping[str, Any], image_size: int
) -> dict[str, Any]:
    name = next((each for each in _IMAGE_SHAPES if each in parameters), None)
    if name is None:
        return {}  # the model's inputs may leave the size open
    known = given.get(name)
    channels = known[-1] if isinstance(known, list) and len(known) == 3 else 3
    return {name: (image_size, image_size, channels)}


def _check_arguments(cls: type, text: str, given: Mapping[str, Any]) -> None:
    try:
        inspect.signature(cls).bind(**given)
    except TypeError as error:
        raise InputError(
            f"{text} does not take these arguments: {error}.",
            hint=f"--config names a JSON file with the arguments of {_signature(cls)}",
        ) from error
    except ValueError:  # a class of C has no signature
        return


def _signature(cls: type) -> str:
    """The constructor's signature, short: `BertBackbone(vocabulary_size, num_layers, dropout=0.1)`."""
    shown = []
    for parameter in _parameters(cls).values():
        if parameter.kind is parameter.VAR_KEYWORD:
            shown.append(f"**{parameter.name}")
        elif parameter.kind is parameter.VAR_POSITIONAL:
            shown.append(f"*{parameter.name}")
        elif parameter.default is parameter.empty:
            shown.append(parameter.name)
        else:
            default = repr(parameter.default)
            shown.append(f"{parameter.name}={default if len(default) <= 20 else '...'}")
    return f"{cls.__name__}({', '.join(shown)})"


def _resolve(value: Any, package: str) -> Any:
    """The value of an argument: objects of classes built, all else as JSON has it."""
    if isinstance(value, list):
        return [_resolve(each, package) for each in value]
    if not isinstance(value, dict):
        return value
    if "class" in value and set(value) <= {"class", "config"}:
        return _build_nested(str(value["class"]), value.get("config") or {}, package)
    if "class_name" in value and "config" in value:
        import keras

        return keras.saving.deserialize_keras_object(value)
    return {name: _resolve(each, package) for name, each in value.items()}


def _build_nested(name: str, config: dict[str, Any], package: str) -> Any:
    place, _, name = name.rpartition(":")
    place = place or package
    check_package(place)
    module = importlib.import_module(place)
    found = find_in_package(module, name)
    if found is None:
        raise unknown_class(module, place, name)
    if inspect.isclass(found):
        _check_arguments(found, f"{place}:{name}", config)
    return found(**{key: _resolve(each, place) for key, each in config.items()})


def unknown_class(module: ModuleType, place: str, name: str) -> UnknownNameError:
    """The error for a name that a package does not have."""
    known = class_names(module)
    few = f": {', '.join(known)}" if len(known) <= 12 else ""
    return UnknownNameError(f"class in {place}", name, known, more=f"{place} has {len(known)} models{few}")


def _first_line(error: BaseException) -> str:
    said = message_of(error).strip().splitlines()
    return f"{type(error).__name__}: {said[0][:300] if said else ''}".rstrip(": ")
