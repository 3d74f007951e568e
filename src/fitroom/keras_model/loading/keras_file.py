"""Models from `.keras` files, read in Keras's safe mode, with their weights' values or without."""

import json
import re
import zipfile
from pathlib import Path
from typing import Any

from fitroom.errors import InputError, ModelError
from fitroom.keras_model.loading.keras_archive import CONFIG, check_members
from fitroom.keras_model.twin import without_values

_UNSAFE_MARKS = ("safe_mode", "unsafe_deserialization")
_UNKNOWN_CODE = re.compile(r"Could not locate (class|function) '([^']+)'")


def is_keras_file(text: str) -> bool:
    """Whether the text means a file: by its suffix, or because there is one of that name."""
    return text.endswith((".keras", ".h5", ".hdf5")) or Path(text).exists()


def read_model(text: str, *, unsafe: bool, values: bool = False) -> Any:
    """The model of the file: without values, compiled as it was saved; or with them, and not compiled."""
    path = Path(text)
    config = _read_config(path)
    compile_config = config.pop("compile_config", None)
    try:
        import keras

        if values:
            model = keras.saving.load_model(path, compile=False, safe_mode=not unsafe)
        else:
            with without_values():
                model = keras.saving.deserialize_keras_object(config, safe_mode=not unsafe)
            if compile_config:
                model.compile(**keras.saving.deserialize_keras_object(compile_config, safe_mode=not unsafe))
    except Exception as error:
        raise _unreadable(path, error, unsafe) from error
    if not isinstance(model, keras.Model):
        raise ModelError(
            f"{path} holds a {type(model).__name__}, not a model.", hint="save the model itself with `model.save(path)`"
        )
    return model


def _read_config(path: Path) -> dict[str, Any]:
    if not path.exists():
        raise InputError(f"There is no file {str(path)!r}.", hint="check the path; it is read from the current folder")
    if path.suffix in (".h5", ".hdf5"):
        raise InputError(
            f"{path} is in the older HDF5 format. Expected: a .keras file.",
            hint="load it with `keras.saving.load_model` and save it again as `model.save('model.keras')`",
        )
    if path.suffix != ".keras" and path.is_file():
        raise InputError(
            f"{path} is not a .keras file.", hint="save the model with `model.save('model.keras')` and give that file"
        )
    try:
        check_members(path)
        with zipfile.ZipFile(path) as archive:
            config: dict[str, Any] = json.loads(archive.read(CONFIG))
            if not isinstance(config, dict) or "class_name" not in config:
                raise ValueError(f"its {CONFIG} holds no model")
    except InputError:
        raise
    except RecursionError:
        raise InputError(
            f"{path} is not a whole .keras file: its {CONFIG} is nested too deeply.",
            hint="make it anew with `model.save(path)`",
        ) from None
    except Exception as error:  # a flipped bit can make zipfile raise almost anything
        raise InputError(
            f"{path} is not a whole .keras file: {str(error).strip(chr(39))}.",
            hint="it may have been cut short while it was copied or saved; make it anew with `model.save(path)`",
        ) from error
    return config


def _unreadable(path: Path, error: Exception, unsafe: bool) -> ModelError:
    said = str(error).strip().splitlines()[0][:300] if str(error).strip() else type(error).__name__
    if unknown := _UNKNOWN_CODE.search(str(error)):
        said = f"it needs the {unknown[1]} {unknown[2]!r}, which is not part of Keras."
    elif not unsafe and any(mark in str(error) for mark in _UNSAFE_MARKS):
        return ModelError(
            f"{path} brings Python code of its own, as a Lambda layer does, which safe mode does not run.",
            hint="if you trust where the file is from, add --unsafe",
        )
    return ModelError(
        f"The model in {path} could not be rebuilt: {said}",
        hint="a model with code of your own needs that code: write a function that loads it, as file.py:function",
    )
