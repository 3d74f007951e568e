"""The scan of all files: the hash of each one's content, and whether it is an image that decodes."""

import hashlib
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fitroom.data.files import display_name
from fitroom.data.scan_cache import ScanCache
from fitroom.errors import HostMemoryError

if TYPE_CHECKING:
    from fitroom.data.opening import Header

Progress = Callable[[str, int, int], None]
"""Called with what is being done, how many are done, and how many there are."""

_CHUNK = 256


@dataclass(frozen=True)
class ScannedFile:
    """What the scan found out about a file."""

    digest: str
    """SHA-256 of the content; empty where the file cannot be read."""

    size_bytes: int
    found: "Header | str"
    """The header of the image, or the reason why the file cannot be used."""


def scan(paths: Sequence[Path], *, workers: int, progress: Progress | None = None) -> list[ScannedFile]:
    """Scan files, except those that the cache knows and that have not changed since."""
    report = progress or (lambda text, done, total: None)
    with ScanCache() as known, ThreadPoolExecutor(workers, thread_name_prefix="fitroom scan") as threads:
        report("scanning the images", 0, len(paths))
        stamps = {path: _stamp(path) for path in paths}
        seen = known.find(stamps)
        new = [path for path in stamps if path not in seen]
        for start in range(0, len(new), _CHUNK):
            report("scanning the images", len(seen), len(paths))
            chunk = new[start : start + _CHUNK]
            found = dict(zip(chunk, threads.map(look_at, chunk), strict=True))
            seen |= found
            known.store(stamps, found)
        report("scanning the images", len(paths), len(paths))
    return [seen[path] for path in paths]


def look_at(path: Path) -> ScannedFile:
    """Read, hash and decode one file."""
    from fitroom.data.decode import read_bytes, verify_image
    from fitroom.data.opening import BadImageError

    digest, size_bytes = "", 0
    try:
        data = read_bytes(path)
        digest, size_bytes = hashlib.sha256(data).hexdigest(), len(data)
        return ScannedFile(digest, size_bytes, verify_image(data))
    except BadImageError as error:
        return ScannedFile(digest, size_bytes, str(error))
    except MemoryError as error:
        raise HostMemoryError(
            f"Out of host memory while scanning {display_name(path)}.",
            hint="use fewer `workers`, or end other programs",
        ) from error


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        known = os.stat(path)
    except OSError:
        return None
    return known.st_size, known.st_mtime_ns
