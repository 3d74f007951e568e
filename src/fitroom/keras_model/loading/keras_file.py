"""Models from `.keras` files: whether the archive is whole and safe to unpack, and reading it in Keras's safe mode.

The checks of the archive need no Keras.
"""

import json
import re
import zipfile
from pathlib import Path
from typing import Any

from fitroom.errors import InputError, ModelError
from fitroom.keras_model.private import initialize_missing_values, uninitialized_variables
from fitroom.keras_model.twin import without_values
from fitroom.units import format_bytes

CONFIG = "config.json"
LARGEST_TEXT_BYTES = 64 * 1024**2
"""Of a member that is parsed whole, as the configuration is: that of the largest models has a few MiB."""

_MOST_TIMES, _HARMLESS_BYTES = 50, 256 * 1024**2
"""Keras stores members as they are. Weights that somebody compressed shrink to a half; a bomb to a thousandth."""


def damage_of(path: Path) -> str | None:
    """Why a `.keras` file is damaged or no such file, or None where it is whole. Every byte is read."""
    try:
        check_members(path)
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
            if missing := [name for name in (CONFIG, "metadata.json") if name not in names]:
                return f"it has no {missing[0]}"
            if not any(name.startswith("model.weights") for name in names):
                return "it has no weights"
            damaged = archive.testzip()
            return f"the checksum of {damaged} does not match" if damaged else None
    except FileNotFoundError:
        return "it is missing"
    except InputError as error:
        return error.message
    except OSError as error:
        return error.strerror or str(error)
    except Exception as error:  # a flipped bit can make zipfile raise almost anything
        return str(error) or type(error).__name__


def check_members(path: Path) -> None:
    """Refuse an archive whose members would take far more memory than the file, before one of them is unpacked."""
    if path.exists() and not path.is_file():
        kind = "a folder" if path.is_dir() else "no file"
        raise InputError(f"{path} is {kind}. Expected: a .keras file.", hint="give the .keras file itself")
    with zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            is_text = member.filename.endswith(".json") and "/" not in member.filename
            largest = LARGEST_TEXT_BYTES if is_text else max(_HARMLESS_BYTES, _MOST_TIMES * member.compress_size)
            if member.file_size > largest:
                raise InputError(
                    f"{path} is not a .keras file to be opened: its {member.filename} unpacks to "
                    f"{format_bytes(member.file_size)}, from {format_bytes(member.compress_size)}. "
                    f"Expected: at most {format_bytes(largest)}.",
                    hint="save the model again with `model.save(path)`",
                )


_UNSAFE_MARKS = ("safe_mode", "unsafe_deserialization")
_UNKNOWN_CODE = re.compile(r"Could not locate (class|function) '([^']+)'")


def is_keras_file(text: str) -> bool:
    """Whether the text means a file: by its suffix, or because there is one of that name."""
    return text.endswith((".keras", ".h5", ".hdf5")) or Path(text).exists()


def read_model(text: str, *, unsafe: bool, values: bool = False) -> Any:
    """Read the model of a file: without values, compiled as it was saved; or with them, and not compiled."""
    path = Path(text)
    config = _read_config(path)
    compile_config = config.pop("compile_config", None)
    try:
        import keras

        if values:
            model = _read_with_values(path, config, unsafe=unsafe)
        else:
            with without_values():
                model = keras.saving.deserialize_keras_object(config, safe_mode=not unsafe)
            if compile_config:
                model.compile(**keras.saving.deserialize_keras_object(compile_config, safe_mode=not unsafe))
    except Exception as error:
        raise _make_error(path, error, unsafe) from error
    if not isinstance(model, keras.Model):
        raise ModelError(
            f"{path} holds a {type(model).__name__}, not a model.", hint="save the model itself with `model.save(path)`"
        )
    return model


def _read_with_values(path: Path, config: dict[str, Any], *, unsafe: bool) -> Any:
    """Read a model with its weights.

    Keras gives each weight a random value first and then the one of the file. On JAX the random values are programs to
    compile, one for each shape: 7 seconds for Xception. There only what the file has no value for gets an initial one.
    """
    import keras

    if keras.backend.backend() != "jax" or _has_assets(path):
        return keras.saving.load_model(path, compile=False, safe_mode=not unsafe)
    with without_values():
        before = set(map(id, uninitialized_variables()))
        model = keras.saving.deserialize_keras_object(config, safe_mode=not unsafe)
        made = [each for each in uninitialized_variables() if id(each) not in before]
    if isinstance(model, keras.Model):
        model.load_weights(path)
        initialize_missing_values(made)
    return model


def _has_assets(path: Path) -> bool:
    """Whether layers have files of their own in it, such as vocabularies, which come with no weights."""
    with zipfile.ZipFile(path) as archive:
        return any(name.startswith("assets/") for name in archive.namelist())


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
            hint="save it again with `model.save(path)`",
        ) from None
    except Exception as error:  # a flipped bit can make zipfile raise almost anything
        raise InputError(
            f"{path} is not a whole .keras file: {str(error).strip(chr(39))}.",
            hint="it may have been truncated while it was copied or saved; save it again with `model.save(path)`",
        ) from error
    return config


def _make_error(path: Path, error: Exception, unsafe: bool) -> ModelError:
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
