"""What earlier scans found, on disk: a file is known by its path as long as its size and time stay the same.

SQLite does what a cache shared by processes needs: it survives being killed, and two may write at once. Every row has a
checksum, and the file a largest size, beyond which what was not seen for longest goes. Whatever goes wrong with it, the
files are just looked at again.
"""

import hashlib
import os
import sqlite3
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import astuple
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from fitroom.environment import cache_folder

if TYPE_CHECKING:
    from fitroom.data.scan import Seen

_VERSION = 2
"""Of what a look at a file finds: another number, and all files are looked at again."""

LARGEST_BYTES = 512 * 1024**2
"""Of the database: some two million files."""

Stamp = tuple[int, int]

_COLUMNS = "size, time, digest, reason, format, mode, width, height, progressive, orientation"
_OWN_COLUMNS = "seen, checksum"
"""The day on which a file was last seen, and a checksum of all but that."""


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
            for older in range(1, _VERSION):
                (folder / f"pictures-{older}.sqlite3").unlink(missing_ok=True)
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
        question = f"SELECT {_COLUMNS}, {_OWN_COLUMNS} FROM files WHERE path = ?"
        today, old = _today(), []
        with suppress(sqlite3.Error, OverflowError):
            for path, stamp in stamps.items():
                key = _key(path)
                row = self._database.execute(question, (key,)).fetchone()
                if row is None or stamp != row[:2] or row[-1] != _checksum(key, row[:-2]):
                    continue
                found[path] = _seen(row[:-2])
                if row[-2] != today:
                    old.append((today, key))
        with suppress(sqlite3.Error), self._database:
            self._database.executemany("UPDATE files SET seen = ? WHERE path = ?", old)
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
                key, row = _key(path), (*stamp, seen.digest, *_columns(seen.found))
                rows.append((key, *row, _today(), _checksum(key, row)))
        with suppress(sqlite3.Error, OverflowError):
            try:
                self._insert(rows)
            except sqlite3.OperationalError:  # it has its largest size
                _make_room(self._database, is_full=True)
                self._insert(rows)

    def _insert(self, rows: list[tuple[Any, ...]]) -> None:
        assert self._database is not None
        marks = ", ".join("?" for _ in f"{_COLUMNS}, {_OWN_COLUMNS}".split(","))
        with self._database:
            self._database.executemany(f"INSERT OR REPLACE INTO files VALUES (?, {marks})", rows)


def _opened(file: Path) -> sqlite3.Connection:
    if file.exists() and not file.is_file():  # a pipe would never end
        raise sqlite3.OperationalError("not a file")
    database = sqlite3.connect(file, timeout=10)
    columns = f"{_COLUMNS}, {_OWN_COLUMNS}"
    database.execute(f"CREATE TABLE IF NOT EXISTS files (path BLOB PRIMARY KEY, {columns}) WITHOUT ROWID")
    _make_room(database)
    return database


def _make_room(database: sqlite3.Connection, *, is_full: bool = False) -> None:
    """Keep the database below its size: what was not seen for longest goes, half of it, before it is full."""
    ((page_bytes,),) = database.execute("PRAGMA page_size").fetchall()
    ((pages,),) = database.execute("PRAGMA page_count").fetchall()
    ((free,),) = database.execute("PRAGMA freelist_count").fetchall()
    database.execute(f"PRAGMA max_page_count = {max(pages, LARGEST_BYTES // page_bytes)}").fetchall()
    if is_full or (pages - free) * page_bytes > LARGEST_BYTES * 3 // 4:
        with database:
            database.execute(
                "DELETE FROM files WHERE path IN (SELECT path FROM files ORDER BY seen LIMIT (SELECT COUNT(*) / 2 "
                "FROM files))"
            )


def _today() -> int:
    return int(time.time() // 86400)


def _checksum(key: bytes, row: tuple[Any, ...]) -> str:
    return hashlib.blake2b(key + repr(row).encode("utf-8", "replace"), digest_size=16).hexdigest()


def _columns(found: Any) -> tuple[Any, ...]:
    if isinstance(found, str):  # a decoder's words may hold what is no text
        return (found.encode("utf-8", "replace").decode(), *[None] * 6)
    return (None, *astuple(found))


def _seen(row: tuple[Any, ...]) -> "Seen":
    from fitroom.data.opening import Header
    from fitroom.data.scan import Seen

    size_bytes, _, digest, reason, *header = row
    return Seen(digest, size_bytes, Header(*header) if reason is None else reason)


def _key(path: Path) -> bytes:
    return os.fsencode(os.path.abspath(path))
