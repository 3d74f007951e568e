"""What earlier scans found, on disk: a file is known by its path as long as its size and time stay the same.

SQLite does what a cache shared by processes needs: it survives being killed, and two may write at once. Whatever goes
wrong with it, the files are just looked at again.
"""

import os
import sqlite3
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import astuple
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from fitroom.environment import cache_folder

if TYPE_CHECKING:
    from fitroom.data.scan import Seen

_VERSION = 1
"""Of what a look at a file finds: another number, and all files are looked at again."""

Stamp = tuple[int, int]

_COLUMNS = "size, time, digest, reason, format, mode, width, height, progressive, orientation"


class KnownFiles:
    """The cache, open from `with` to its end. Without a cache folder nothing is known and nothing kept."""

    def __init__(self) -> None:
        self._database: sqlite3.Connection | None = None
        folder = cache_folder()
        if folder is None:
            return
        file = folder / f"pictures-{_VERSION}.sqlite3"
        with suppress(sqlite3.Error, OSError):
            folder.mkdir(parents=True, exist_ok=True)
            try:
                self._database = _opened(file)
            except sqlite3.OperationalError:  # in use, or no place to write
                raise
            except sqlite3.DatabaseError:  # no database: something damaged it
                file.unlink()
                self._database = _opened(file)

    def __enter__(self) -> "KnownFiles":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._database is not None:
            self._database.close()

    def find(self, stamps: Mapping[Path, Stamp | None]) -> dict[Path, "Seen"]:
        """What is known of files that are as they were."""
        found: dict[Path, Seen] = {}
        if self._database is None:
            return found
        with suppress(sqlite3.Error):
            for path, stamp in stamps.items():
                row = self._database.execute(f"SELECT {_COLUMNS} FROM files WHERE path = ?", (_key(path),)).fetchone()
                if row is not None and stamp == row[:2]:
                    found[path] = _seen(row)
        return found

    def keep(self, stamps: Mapping[Path, Stamp | None], found: Mapping[Path, "Seen"]) -> None:
        """Keep what was found, at once: a scan that is stopped goes on where it was."""
        if self._database is None:
            return
        rows = []
        for path, seen in found.items():
            stamp = stamps[path]
            # What could not be read may be readable next time without having changed.
            if stamp is not None and seen.digest and seen.size_bytes == stamp[0]:
                rows.append((_key(path), *stamp, seen.digest, *_columns(seen.found)))
        with suppress(sqlite3.Error), self._database:
            marks = ", ".join("?" for _ in _COLUMNS.split(","))
            self._database.executemany(f"INSERT OR REPLACE INTO files VALUES (?, {marks})", rows)


def _opened(file: Path) -> sqlite3.Connection:
    database = sqlite3.connect(file, timeout=10)
    database.execute(f"CREATE TABLE IF NOT EXISTS files (path BLOB PRIMARY KEY, {_COLUMNS}) WITHOUT ROWID")
    return database


def _columns(found: Any) -> tuple[Any, ...]:
    return (found, *[None] * 6) if isinstance(found, str) else (None, *astuple(found))


def _seen(row: tuple[Any, ...]) -> "Seen":
    from fitroom.data.opening import Header
    from fitroom.data.scan import Seen

    size_bytes, _, digest, reason, *header = row
    return Seen(digest, size_bytes, Header(*header) if reason is None else reason)


def _key(path: Path) -> bytes:
    return os.fsencode(os.path.abspath(path))
