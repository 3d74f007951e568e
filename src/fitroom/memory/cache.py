"""Results kept on disk, found again by content.

A key is a digest of everything that decides the result, so an entry never grows stale: another program, card or
version is another key. An entry is written beside and renamed, and says which key it is of; one that cannot be read, or
is another's, is as if it were not there. All of them together stay below a size: what was not used for longest goes.
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
_SUFFIX, _LEFT = ".json.gz", ".tmp"
_OLD_SECONDS = 3600
"""After which nobody is writing a file any more."""


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
    """What was kept under the key, or None."""
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
    """Keep a value. A cache that cannot be written is no reason to lose the result, and nothing is left of the try."""
    folder = cache_folder()
    if folder is None:
        return
    beside = None
    try:
        packed = gzip.compress(json.dumps({"key": key, "value": value}).encode(), compresslevel=3)
        folder.mkdir(parents=True, exist_ok=True)
        _make_room(folder, len(packed))
        handle, beside = tempfile.mkstemp(dir=folder, suffix=_LEFT)
        with os.fdopen(handle, "wb") as file:
            file.write(packed)
        os.replace(beside, folder / (key + _SUFFIX))
    except OSError:
        if beside is not None:
            with suppress(OSError):
                os.unlink(beside)


def _make_room(folder: Path, needed_bytes: int) -> None:
    """Remove the entries that were not used for longest, until one more fits; and what a kill left."""
    entries = []
    for entry in os.scandir(folder):
        with suppress(OSError):
            if entry.name.endswith(_SUFFIX):
                known = entry.stat(follow_symlinks=False)
                entries.append((known.st_mtime, known.st_size, entry.path))
            elif entry.name.endswith(_LEFT) and time.time() - entry.stat().st_mtime > _OLD_SECONDS:
                os.unlink(entry.path)
    taken_bytes = needed_bytes + sum(size for _, size, _ in entries)
    for _, size, path in sorted(entries):
        if taken_bytes <= LARGEST_BYTES:
            break
        with suppress(OSError):
            os.unlink(path)
        taken_bytes -= size
