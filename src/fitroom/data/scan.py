"""Every file looked at once: its content's hash, and whether it really is a picture that decodes."""

import hashlib
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fitroom.data.known_files import KnownFiles

if TYPE_CHECKING:
    from fitroom.data.opening import Header

Progress = Callable[[str, int, int], None]
"""Told what is being done, how much of it is done, and how much there is."""

_AT_ONCE = 256


@dataclass(frozen=True)
class Skipped:
    """A file that is left out, and why."""

    file: Path
    reason: str


@dataclass(frozen=True)
class Seen:
    """What a look at a file gave."""

    digest: str
    reason: str | None
    """Why it is no picture to train on; None where it is one."""

    format: str = ""
    width: int = 0
    height: int = 0
    progressive: int = 0
    """As SQLite keeps it: 0 or 1."""

    @property
    def header(self) -> "Header":
        """What the file says of itself."""
        from fitroom.data.opening import Header

        return Header(self.format, self.width, self.height, bool(self.progressive))


def scan(paths: Sequence[Path], *, workers: int, progress: Progress | None = None) -> list[Seen]:
    """What each file is, from the cache where the file is as it was."""
    told = progress or (lambda text, done, total: None)
    seen: dict[Path, Seen] = {}
    with KnownFiles() as known, ThreadPoolExecutor(workers, thread_name_prefix="fitroom scan") as threads:
        told("looking at the pictures", 0, len(paths))
        stamps = {path: _stamp(path) for path in paths}
        for path, row in known.find(stamps).items():
            seen[path] = Seen(*row)
        new = [path for path in stamps if path not in seen]
        for start in range(0, len(new), _AT_ONCE):
            part = new[start : start + _AT_ONCE]
            told("looking at the pictures", len(paths) - len(new) + start, len(paths))
            found = dict(zip(part, threads.map(look_at, part), strict=True))
            seen |= found
            known.keep({path: (stamps[path], astuple(one)) for path, one in found.items()})
        told("looking at the pictures", len(paths), len(paths))
    return [seen[path] for path in paths]


def look_at(path: Path) -> Seen:
    """Read and decode one file, a JPEG at an eighth of its scale: all of its data are read either way."""
    from fitroom.data.decode import decoded, read_bytes
    from fitroom.data.opening import BadPictureError, opened

    digest = ""
    try:
        data = read_bytes(path)
        digest = hashlib.sha256(data).hexdigest()
        header = opened(data)[1]
        decoded(data, 1, "crop")
    except BadPictureError as error:
        return Seen(digest, str(error))
    return Seen(digest, None, header.format, header.width, header.height, int(header.progressive))


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        known = os.stat(path)
    except OSError:
        return None
    return known.st_size, known.st_mtime_ns
