"""Presets of KerasHub in a local folder: the model that `config.json` and `task.json` describe, without its weights."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fitroom.errors import InputError, ModelError, message_of
from fitroom.keras_model.loading.package_class import build_without_values, pip_name

CONFIG, TASK = "config.json", "task.json"
_LARGEST_FILE_BYTES = 64 * 1024**2


def is_preset(text: str) -> bool:
    """Whether the text is a folder with a preset."""
    return (Path(text) / CONFIG).is_file()


def digest_of(text: str) -> str:
    """What identifies the model of a preset: the files that describe it."""
    found = hashlib.sha256()
    for name in (CONFIG, TASK):
        file = Path(text, name)
        found.update(file.read_bytes() if file.is_file() else b"-")
    return found.hexdigest()


def read_preset(text: str) -> Any:
    """The task of a preset, or the backbone where it has no task."""
    config = _read(Path(text, CONFIG))
    try:
        import keras_hub
    except ImportError as error:
        raise ModelError(
            f"{text} is a preset of KerasHub, which cannot be imported: {message_of(error)}",
            hint="pip install keras-hub",
        ) from error
    build: Callable[..., Any]
    if "registered_name" in config:
        task = Path(text, TASK)
        build = _deserialize(_read(task) if task.is_file() else config)
    else:  # a folder of transformers or timm, which KerasHub converts
        build = lambda: keras_hub.models.Backbone.from_preset(str(Path(text)), load_weights=False)  # noqa: E731
    try:
        return build_without_values(build, compiles=Path(text, TASK).is_file())
    except ModuleNotFoundError as error:
        raise ModelError(
            f"The preset {text} needs the module {error.name!r}.", hint=f"pip install {pip_name(error.name or '')}"
        ) from error
    except Exception as error:
        said = (message_of(error).strip().splitlines() or [""])[0][:300]
        raise ModelError(
            f"The preset {text} cannot be built: {type(error).__name__}: {said}",
            hint="was it written by `save_to_preset` of the keras_hub that is installed?",
        ) from error


def _deserialize(serialized: dict[str, Any]) -> Callable[..., Any]:
    import keras

    # Texts and images are made ready before they reach the step; the vocabulary is not needed.
    arguments = {name: value for name, value in serialized["config"].items() if name != "preprocessor"}
    if "preprocessor" in serialized["config"]:
        arguments["preprocessor"] = None
    return lambda **more: keras.saving.deserialize_keras_object(serialized | {"config": arguments | more})


def _read(file: Path) -> dict[str, Any]:
    try:
        if file.stat().st_size > _LARGEST_FILE_BYTES:
            raise ValueError(f"it has {file.stat().st_size:,} bytes")
        found = json.loads(file.read_text("utf-8"))
        if not isinstance(found, dict):
            raise ValueError("it holds no JSON object")
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{file} cannot be read as a preset: {error}", hint="give the folder of a preset") from error
    if not isinstance(found.get("config", {}), dict):
        raise InputError(f"{file} cannot be read as a preset: its config is no JSON object", hint="save it again")
    return found
