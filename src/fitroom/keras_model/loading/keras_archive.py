"""A `.keras` file as the archive that it is: whether it is whole, and whether unpacking it is safe; without Keras."""

import zipfile
from pathlib import Path

from fitroom.errors import InputError
from fitroom.units import format_bytes

CONFIG = "config.json"
LARGEST_TEXT_BYTES = 64 * 1024**2
"""Of a member that is parsed whole, as the configuration is: that of the largest models has a few MiB."""

_MOST_TIMES, _HARMLESS_BYTES = 50, 256 * 1024**2
"""Keras stores members as they are. Weights that somebody compressed shrink to a half; a bomb to a thousandth."""


def damage_of(path: Path) -> str | None:
    """Why a file is no whole `.keras` file, or None where it is. Every byte is read."""
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
                    hint="save the model anew with `model.save(path)`",
                )
