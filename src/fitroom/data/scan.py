"""Every file looked at once: its content's hash, and whether it really is a picture that decodes."""

import hashlib
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fitroom.data.known_files import KnownFiles
from fitroom.data.walk import shown
from fitroom.errors import HostMemoryError

if TYPE_CHECKING:
    from fitroom.data.opening import Header

Progress = Callable[[str, int, int], None]
"""Told what is being done, how much of it is done, and how much there is."""

_AT_ONCE = 256


@dataclass(frozen=True)
class Seen:
    """What a look at a file gave."""

    digest: str
    """Of its content; empty where it cannot be read."""

    size_bytes: int
    found: "Header | str"
    """What the picture says of itself; or why it is no picture to train on."""


def scan(paths: Sequence[Path], *, workers: int, progress: Progress | None = None) -> list[Seen]:
    """What each file is, from the cache where the file is as it was."""
    told = progress or (lambda text, done, total: None)
    with KnownFiles() as known, ThreadPoolExecutor(workers, thread_name_prefix="fitroom scan") as threads:
        told("looking at the pictures", 0, len(paths))
        stamps = {path: _stamp(path) for path in paths}
        seen = known.find(stamps)
        new = [path for path in stamps if path not in seen]
        for start in range(0, len(new), _AT_ONCE):
            told("looking at the pictures", len(seen), len(paths))
            part = new[start : start + _AT_ONCE]
            found = dict(zip(part, threads.map(look_at, part), strict=True))
            seen |= found
            known.keep(stamps, found)
        told("looking at the pictures", len(paths), len(paths))
    return [seen[path] for path in paths]


def look_at(path: Path) -> Seen:
    """Read and decode one file."""
    from fitroom.data.decode import read_bytes, verified
    from fitroom.data.opening import BadPictureError

    digest, size_bytes = "", 0
    try:
        data = read_bytes(path)
        digest, size_bytes = hashlib.sha256(data).hexdigest(), len(data)
        return Seen(digest, size_bytes, verified(data))
    except BadPictureError as error:
        return Seen(digest, size_bytes, str(error))
    except MemoryError as error:
        raise HostMemoryError(
            f"The host has no memory to look at {shown(path)}.", hint="fewer `workers`, or end what else takes memory"
        ) from error


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        known = os.stat(path)
    except OSError:
        return None
    return known.st_size, known.st_mtime_ns
