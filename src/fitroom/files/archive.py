"""Arrays and facts in one file, every byte of it covered by a checksum, and nothing pickled.

The file is an `.npz`: `numpy.load` and `unzip` open it. `facts.json` holds the facts; `index.json` each array's dtype,
shape and SHA-256; the archive's comment is the SHA-256 of the index. A dtype that NumPy does not have of its own
(bfloat16) is stored as the unsigned integers of its bits.
"""

import hashlib
import json
import math
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

_CHUNK_BYTES = 16 * 1024**2
_FACTS, _INDEX = "facts.json", "index.json"


class DamagedError(Exception):
    """The file is not what was written."""


def write_archive(file: BinaryIO, arrays: Mapping[str, Any], facts: Mapping[str, Any]) -> None:
    """Write arrays and facts. Python's lock is released for most of the time."""
    index = {name: {"dtype": _dtype_name(array, name), "shape": list(array.shape)} for name, array in arrays.items()}
    text = json.dumps(facts, default=_plain).encode()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(_FACTS, text)
        for name, array in arrays.items():
            index[name]["sha256"] = _write_array(archive, name, array)
        about = json.dumps({"facts": hashlib.sha256(text).hexdigest(), "arrays": index}).encode()
        archive.writestr(_INDEX, about)
        archive.comment = hashlib.sha256(about).hexdigest().encode()


def read_archive(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Read the arrays and the facts of a file. Raises DamagedError where it is not what was written."""
    try:
        with zipfile.ZipFile(path) as archive:
            _check_stored_dtype(archive)
            about = archive.read(_INDEX)
            _check(about, archive.comment.decode(), "the index")
            index = json.loads(about)
            text = archive.read(_FACTS)
            _check(text, index["facts"], "the facts")
            arrays = {name: _read_array(archive, name, entry) for name, entry in index["arrays"].items()}
            return arrays, json.loads(text)
    except (MemoryError, DamagedError):
        raise
    except OSError as error:
        raise DamagedError(error.strerror or str(error)) from error
    except Exception as error:  # a flipped bit can make zipfile raise almost anything
        raise DamagedError(f"{type(error).__name__}: {error}") from error


def _write_array(archive: zipfile.ZipFile, name: str, array: Any) -> str:
    """Write one array as a `.npy`. Returns the checksum of its data."""
    found = hashlib.sha256()
    header = {"descr": _stored_dtype(array.dtype).str, "fortran_order": False, "shape": array.shape}
    with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
        np.lib.format.write_array_header_1_0(member, header)
        for chunk in _chunks(np.ascontiguousarray(array)):
            found.update(chunk)
            member.write(chunk)
    return found.hexdigest()


def _read_array(archive: zipfile.ZipFile, name: str, entry: Mapping[str, Any]) -> Any:
    dtype, shape = _dtype(entry["dtype"]), tuple(entry["shape"])
    if math.prod(shape) * dtype.itemsize > archive.getinfo(f"{name}.npy").file_size:  # before the memory is taken
        raise DamagedError(f"the array {name!r} is cut short")
    array = np.empty(shape, dtype)
    found = hashlib.sha256()
    with archive.open(f"{name}.npy") as member:
        np.lib.format.read_magic(member)
        np.lib.format.read_array_header_1_0(member)
        for chunk in _chunks(array):
            data = member.read(len(chunk))
            if len(data) != len(chunk):
                raise DamagedError(f"the array {name!r} is cut short")
            chunk[:] = data
            found.update(data)
    if found.hexdigest() != entry["sha256"]:
        raise DamagedError(f"the checksum of {name!r} does not match")
    return array


def _check_stored_dtype(archive: zipfile.ZipFile) -> None:
    """Refuse compressed members: fitroom writes none, and one could unpack to more than the memory."""
    for member in archive.infolist():
        if member.compress_type != zipfile.ZIP_STORED or member.file_size != member.compress_size:
            raise DamagedError(f"{member.filename!r} is compressed, which no checkpoint is")


def _chunks(array: Any) -> Iterator[memoryview]:
    """The memory of an array in chunks that do not keep other threads waiting."""
    data = memoryview(array.reshape(-1).view(np.uint8))
    for start in range(0, len(data), _CHUNK_BYTES):
        yield data[start : start + _CHUNK_BYTES]


def _dtype_name(array: Any, name: str) -> str:
    dtype = array.dtype
    if dtype.isbuiltin == 2:  # registered by another package, as ml_dtypes does
        return str(dtype.name)
    if dtype.kind in "biufc":
        return str(dtype.str)
    raise TypeError(f"An array in a checkpoint must hold numbers. Received: {name!r} of dtype {dtype}.")


def _stored_dtype(dtype: Any) -> Any:
    return np.dtype(f"u{dtype.itemsize}") if dtype.isbuiltin == 2 else dtype


def _dtype(name: str) -> Any:
    if name[0] in "<>|=":
        return np.dtype(name)
    import ml_dtypes

    return np.dtype(getattr(ml_dtypes, name))


def _check(data: bytes, expected: str, what: str) -> None:
    if hashlib.sha256(data).hexdigest() != expected:
        raise DamagedError(f"the checksum of {what} does not match")


def _plain(value: Any) -> Any:
    """A NumPy number as a Python one, for JSON."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"A fact of a checkpoint must be JSON. Received: {value!r} of type {type(value).__name__}.")
