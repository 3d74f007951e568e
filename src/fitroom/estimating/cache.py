"""Results kept on disk, found again by content.

A key is a digest of everything that decides the result, so an entry never grows stale: another program, card or
version is another key. An entry is written beside and renamed; one that cannot be read is as if it were not there.
"""

import gzip
import hashlib
import json
import os
import tempfile
import zlib
from pathlib import Path
from typing import Any

from fitroom.environment import cache_folder

_SUFFIX = ".json.gz"


def digest(*parts: str | bytes) -> str:
    """One key for all the parts, in their order.

    >>> digest("a", "bc") == digest("ab", "c")
    False
    """
    found = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        found.update(f"{len(data)}:".encode() + data)
    return found.hexdigest()


def load(key: str) -> Any:
    """What was kept under the key, or None."""
    folder = cache_folder()
    if folder is None:
        return None
    try:
        return json.loads(gzip.decompress((folder / (key + _SUFFIX)).read_bytes()))
    except (OSError, EOFError, ValueError, zlib.error):
        return None


def store(key: str, value: Any) -> None:
    """Keep a value. A cache that cannot be written is no reason to lose the result."""
    folder = cache_folder()
    if folder is None:
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle, beside = tempfile.mkstemp(dir=folder, suffix=".tmp")
        with os.fdopen(handle, "wb") as file:
            file.write(gzip.compress(json.dumps(value).encode(), compresslevel=3))
        Path(beside).replace(folder / (key + _SUFFIX))
    except OSError:
        return
