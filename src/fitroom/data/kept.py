"""Decoded pictures kept for the next epoch, as many as a limit in bytes allows."""

import os
import tempfile
from collections.abc import Collection
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from fitroom.data.pixels import pixels

_VERSION = 1
"""Of how pictures are decoded and resized: another number, and nothing that was kept is used."""


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
    """Pictures in files, one each, that take their names when they are whole: processes may share them or be killed."""

    def __init__(
        self, folder: Path, limit_bytes: int, *, image_size: int, resize: str, wanted: Collection[str]
    ) -> None:
        self._root = folder
        self._folder = folder / f"{image_size}-{resize}-{_VERSION}-{pixels().name}-{pixels().version}"
        self._shape = (image_size, image_size, 3)
        self._bytes = image_size * image_size * 3
        self._free_bytes = limit_bytes - self._make_room(limit_bytes, set(wanted))

    def get(self, digest: str) -> Any:
        """The picture, or None."""
        picture: Any = np.empty(self._shape, np.uint8)
        try:
            with open(self._file(digest), "rb", buffering=0) as file:
                whole = file.readinto(picture.data.cast("B")) == self._bytes and not file.read(1)
        except OSError:
            return None
        return picture if whole else None

    def put(self, digest: str, picture: Any) -> None:
        """Keep it, if there is room. A disk that is full is no reason to stop."""
        if self._free_bytes < self._bytes:
            return
        self._free_bytes -= self._bytes
        path = self._file(digest)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            handle, beside = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
            with os.fdopen(handle, "wb") as file:
                file.write(np.ascontiguousarray(picture).data)
            os.replace(beside, path)
        except OSError:
            self._free_bytes = 0

    def _file(self, digest: str) -> Path:
        return self._folder / digest[:2] / digest

    def _make_room(self, limit_bytes: int, wanted: set[str]) -> int:
        """Remove what others kept, the oldest first, until what is wanted fits; the bytes that are in use then."""
        ours, others = 0, []
        for path in self._root.glob("*/*/*"):
            try:
                known = path.stat()
            except OSError:  # another process was quicker
                continue
            if path.name in wanted and path.parent.parent == self._folder:
                wanted.discard(path.name)
                ours += known.st_size
            else:
                others.append((known.st_mtime, known.st_size, path))
        needed = ours + len(wanted) * self._bytes
        of_others = sum(size for _, size, _ in others)
        for _, size, path in sorted(others):
            if of_others + needed <= limit_bytes:
                break
            path.unlink(missing_ok=True)
            of_others -= size
        return ours + of_others
