"""A cache of results on disk, addressed by content.

A key is a digest of everything that decides the result, so an entry never grows stale: another program, card or
version is another key. An entry is written beside and renamed, and names its key; one that cannot be read, or names
another key, counts as missing. All entries together stay below a size: the least recently used are removed.
"""

import gzip
import hashlib
import json
import os
import tempfile
import time
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Any

from fitroom.environment import cache_folder
from fitroom.files.durable import read_regular_file

LARGEST_BYTES = 256 * 1024**2
"""Of all entries; one has some ten KiB."""

_LARGEST_ENTRY_BYTES = 64 * 1024**2
_SUFFIX, _TEMPORARY_SUFFIX = ".json.gz", ".tmp"
_OLD_SECONDS = 3600
"""The age from which a temporary file is taken for one that a killed process left."""


def digest(*parts: str | bytes) -> str:
    """One key for all the parts, in their order.

    >>> digest("a", "bc") == digest("ab", "c")
    False
    """
    found = hashlib.sha256()
    for part in parts:
        data = part.encode("utf-8", "surrogateescape") if isinstance(part, str) else part
        found.update(f"{len(data)}:".encode() + data)
    return found.hexdigest()


def load(key: str) -> Any:
    """The value stored under the key, or None."""
    folder = cache_folder()
    if folder is None:
        return None
    path = folder / (key + _SUFFIX)
    try:
        packed = read_regular_file(path, largest_bytes=_LARGEST_ENTRY_BYTES)
        entry = json.loads(gzip.decompress(packed))
        if not isinstance(entry, dict) or entry.get("key") != key:
            return None
        os.utime(path)
        return entry["value"]
    except (OSError, EOFError, ValueError, KeyError, RecursionError, zlib.error):
        return None


def store(key: str, value: Any) -> None:
    """Store a value. Where the cache cannot be written nothing happens: the caller has the result."""
    folder = cache_folder()
    if folder is None:
        return
    beside = None
    try:
        packed = gzip.compress(json.dumps({"key": key, "value": value}).encode(), compresslevel=3)
        folder.mkdir(parents=True, exist_ok=True)
        _make_room(folder, len(packed))
        handle, beside = tempfile.mkstemp(dir=folder, suffix=_TEMPORARY_SUFFIX)
        with os.fdopen(handle, "wb") as file:
            file.write(packed)
        os.replace(beside, folder / (key + _SUFFIX))
    except OSError:
        if beside is not None:
            with suppress(OSError):
                os.unlink(beside)


def _make_room(folder: Path, needed_bytes: int) -> None:
    """Remove the least recently used entries until one more fits, and the temporary files of killed processes."""
    entries = []
    for entry in os.scandir(folder):
        with suppress(OSError):
            if entry.name.endswith(_SUFFIX):
                known = entry.stat(follow_symlinks=False)
                entries.append((known.st_mtime, known.st_size, entry.path))
            elif entry.name.endswith(_TEMPORARY_SUFFIX) and time.time() - entry.stat().st_mtime > _OLD_SECONDS:
                os.unlink(entry.path)
    taken_bytes = needed_bytes + sum(size for _, size, _ in entries)
    for _, size, path in sorted(entries):
        if taken_bytes <= LARGEST_BYTES:
            break
        with suppress(OSError):
            os.unlink(path)
        taken_bytes -= size
