"""Caches of decoded images for the next epoch, in memory or on disk, up to a limit in bytes."""

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

from fitroom.data.pixels import choose_pixel_library

_VERSION = 2
"""Version of decoding, resizing and storing: with another one, nothing that was cached is used."""

_CHECKSUM_BYTES = 4
_TEMPORARY = ".tmp"
_OLD_SECONDS = 3600
"""The age at which a temporary file is taken for left by a killed process."""


class ImageCache(Protocol):
    """A cache of images by the hash of their file's content. It may forget any image: that one is decoded again."""

    def get(self, digest: str) -> Any:
        """The cached image, or None."""

    def put(self, digest: str, image: Any) -> None:
        """Store an image, if there is room."""


class MemoryCache:
    """Images in the memory of this process."""

    def __init__(self, limit_bytes: int) -> None:
        self._images: dict[str, Any] = {}
        self._free_bytes = limit_bytes

    def get(self, digest: str) -> Any:
        """The cached image, or None."""
        return self._images.get(digest)

    def put(self, digest: str, image: Any) -> None:
        """Store an image, if there is room."""
        if image.nbytes <= self._free_bytes and digest not in self._images:
            self._free_bytes -= image.nbytes
            self._images[digest] = np.array(image)


class DiskCache:
    """Images in one file each. A file is renamed into place once it is whole, so processes may share it or be killed.

    A file begins with a checksum of its key and its pixels: a damaged or misplaced one counts as missing, and is
    decoded and written again.
    """

    def __init__(
        self, folder: Path, limit_bytes: int, *, image_size: int, resize: str, wanted: Collection[str]
    ) -> None:
        self._root = folder
        pixels = choose_pixel_library()
        self._folder = folder / f"{image_size}-{resize}-{_VERSION}-{pixels.name}-{pixels.version}"
        self._shape = (image_size, image_size, 3)
        self._bytes = image_size * image_size * 3
        self._file_bytes = _CHECKSUM_BYTES + self._bytes
        self._free_bytes = limit_bytes - self._make_room(limit_bytes, set(wanted))
        self._lock = threading.Lock()

    def get(self, digest: str) -> Any:
        """The cached image, or None."""
        image: Any = np.empty(self._shape, np.uint8)
        pixel_bytes = image.data.cast("B")
        try:
            with open(self._file(digest), "rb", buffering=0, opener=_open_nonblocking) as file:
                checksum = file.read(_CHECKSUM_BYTES)
                whole = file.readinto(pixel_bytes) == self._bytes and not file.read(1)
        except OSError:
            return None
        return image if whole and checksum == _checksum(digest, pixel_bytes) else None

    def put(self, digest: str, image: Any) -> None:
        """Store an image, if there is room. A full disk ends caching, not training, and leaves no partial file."""
        path, data = self._file(digest), np.ascontiguousarray(image).data.cast("B")
        with self._lock:
            needed = 0 if path.exists() else self._file_bytes  # a damaged file is replaced
            if needed and self._free_bytes < needed:
                return
            self._free_bytes -= needed
        beside = None
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            handle, beside = tempfile.mkstemp(dir=path.parent, suffix=_TEMPORARY)
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
        """Remove files of other data sets, the oldest first, until the wanted ones fit. Returns the bytes in use."""
        ours, others = 0, []
        now = time.time()
        for path in self._root.glob("*/*/*"):
            try:
                known = path.lstat()
                if path.suffix == _TEMPORARY and now - known.st_mtime > _OLD_SECONDS:  # left by a killed process
                    path.unlink()
                    continue
            except OSError:  # another process removed it
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
    """A checksum of the pixels and of the key, so that one image's file is not taken for another's.

    It guards against faults, not against attacks, and takes 60 microseconds for an image of 299 x 299 pixels, where
    SHA-256 takes 150.
    """
    return zlib.crc32(pixel_bytes, zlib.crc32(digest.encode())).to_bytes(_CHECKSUM_BYTES, "big")


def _open_nonblocking(path: str, flags: int) -> int:
    """Open a file without blocking, as a pipe would."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
