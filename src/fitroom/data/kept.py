"""Decoded pictures kept for the next epoch, as many as a limit in bytes allows."""

import os
import tempfile
import threading
import time
import zlib
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from fitroom.data.pixels import pixels

_VERSION = 2
"""Of how pictures are decoded, resized and kept: another number, and nothing that was kept is used."""

_CHECKSUM_BYTES = 4
_LEFT = ".tmp"
_OLD_SECONDS = 3600
"""After which nobody is writing a file any more."""


class Kept(Protocol):
    """A cache of pictures by the hash of their file's content. Missing is always allowed: it is decoded again then."""

    def get(self, digest: str) -> Any:
        """The picture, or None."""

    def put(self, digest: str, picture: Any) -> None:
        """Keep it, if there is room."""


class InMemory:
    """Pictures in the memory of this process."""

    def __init__(self, limit_bytes: int) -> None:
        self._pictures: dict[str, Any] = {}
        self._free_bytes = limit_bytes

    def get(self, digest: str) -> Any:
        """The picture, or None."""
        return self._pictures.get(digest)

    def put(self, digest: str, picture: Any) -> None:
        """Keep it, if there is room."""
        if picture.nbytes <= self._free_bytes and digest not in self._pictures:
            self._free_bytes -= picture.nbytes
            self._pictures[digest] = np.array(picture)


class OnDisk:
    """Pictures in files, one each, that take their names when they are whole: processes may share them or be killed.

    A file begins with the checksum of its key and its pixels: one that was torn, zeroed or swapped is as if it were not
    there, and is decoded and written again.
    """

    def __init__(
        self, folder: Path, limit_bytes: int, *, image_size: int, resize: str, wanted: Collection[str]
    ) -> None:
        self._root = folder
        self._folder = folder / f"{image_size}-{resize}-{_VERSION}-{pixels().name}-{pixels().version}"
        self._shape = (image_size, image_size, 3)
        self._bytes = image_size * image_size * 3
        self._file_bytes = _CHECKSUM_BYTES + self._bytes
        self._free_bytes = limit_bytes - self._make_room(limit_bytes, set(wanted))
        self._lock = threading.Lock()

    def get(self, digest: str) -> Any:
        """The picture, or None."""
        picture: Any = np.empty(self._shape, np.uint8)
        pixel_bytes = picture.data.cast("B")
        try:
            with open(self._file(digest), "rb", buffering=0, opener=_opened) as file:
                checksum = file.read(_CHECKSUM_BYTES)
                whole = file.readinto(pixel_bytes) == self._bytes and not file.read(1)
        except OSError:
            return None
        return picture if whole and checksum == _checksum(digest, pixel_bytes) else None

    def put(self, digest: str, picture: Any) -> None:
        """Keep it, if there is room. A disk that is full is no reason to stop, and nothing is left of the attempt."""
        path, data = self._file(digest), np.ascontiguousarray(picture).data.cast("B")
        with self._lock:
            needed = 0 if path.exists() else self._file_bytes  # what is damaged is replaced
            if needed and self._free_bytes < needed:
                return
            self._free_bytes -= needed
        beside = None
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            handle, beside = tempfile.mkstemp(dir=path.parent, suffix=_LEFT)
            with os.fdopen(handle, "wb") as file:
                file.write(_checksum(digest, data))
                file.write(data)
            os.replace(beside, path)
        except OSError:
            self._free_bytes = 0
            if beside is not None:
                with suppress(OSError):
                    os.unlink(beside)

    def _file(self, digest: str) -> Path:
        return self._folder / digest[:2] / digest

    def _make_room(self, limit_bytes: int, wanted: set[str]) -> int:
        """Remove what others kept, the oldest first, until what is wanted fits; the bytes that are in use then."""
        ours, others = 0, []
        now = time.time()
        for path in self._root.glob("*/*/*"):
            try:
                known = path.lstat()
                if path.suffix == _LEFT and now - known.st_mtime > _OLD_SECONDS:  # a kill left it
                    path.unlink()
                    continue
            except OSError:  # another process was quicker
                continue
            if path.name in wanted and path.parent.parent == self._folder:
                wanted.discard(path.name)
                ours += known.st_size
            else:
                others.append((known.st_mtime, known.st_size, path))
        needed = ours + len(wanted) * self._file_bytes
        of_others = sum(size for _, size, _ in others)
        for _, size, path in sorted(others):
            if of_others + needed <= limit_bytes:
                break
            with suppress(OSError):
                path.unlink(missing_ok=True)
                of_others -= size
        return ours + of_others


def _checksum(digest: str, pixel_bytes: Any) -> bytes:
    """Of the key too, so that one picture's file is not taken for another's.

    It is against faults, not against people, and a picture of 299 pixels takes 60 microseconds: SHA-256 takes 150.
    """
    return zlib.crc32(pixel_bytes, zlib.crc32(digest.encode())).to_bytes(_CHECKSUM_BYTES, "big")


def _opened(path: str, flags: int) -> int:
    """A pipe is not waited for."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
