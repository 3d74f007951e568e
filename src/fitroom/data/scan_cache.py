"""Results of earlier scans, on disk. A result holds as long as size and modification time of the file stay the same.

SQLite does what a cache shared by processes needs: it survives a kill, and two processes may write at once. Every row
has a checksum, and the database a largest size, beyond which the rows not used for longest are removed. Whatever goes
wrong with the cache, the files are just scanned again.
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
    from fitroom.data.scan import ScannedFile

_VERSION = 2
"""Version of what a scan records: with another one, all files are scanned again."""

LARGEST_BYTES = 512 * 1024**2
"""The largest size of the database: some two million files."""

Stamp = tuple[int, int]

_COLUMNS = "size, time, digest, reason, format, mode, width, height, progressive, orientation"
_OWN_COLUMNS = "seen, checksum"
"""The day of the last use of a row, and a checksum of everything else in it."""


class ScanCache:
    """The cache, open within `with`. Without a cache folder it is empty and stores nothing."""

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
                self._database = _open(file)
            except sqlite3.OperationalError:  # in use, or not writable
                raise
            except sqlite3.DatabaseError:  # damaged
                file.unlink()
                self._database = _open(file)

    def __enter__(self) -> "ScanCache":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._database is not None:
            self._database.close()

    def find(self, stamps: Mapping[Path, Stamp | None]) -> dict[Path, "ScannedFile"]:
        """The results of files whose size and time are unchanged."""
        found: dict[Path, ScannedFile] = {}
        if self._database is None:
            return found
        query = f"SELECT {_COLUMNS}, {_OWN_COLUMNS} FROM files WHERE path = ?"
        today, old = _today(), []
        with suppress(sqlite3.Error, OverflowError):
            for path, stamp in stamps.items():
                key = _key(path)
                row = self._database.execute(query, (key,)).fetchone()
                if row is None or stamp != row[:2] or row[-1] != _checksum(key, row[:-2]):
                    continue
                found[path] = _read_row(row[:-2])
                if row[-2] != today:
                    old.append((today, key))
        with suppress(sqlite3.Error), self._database:
            self._database.executemany("UPDATE files SET seen = ? WHERE path = ?", old)
        return found

    def store(self, stamps: Mapping[Path, Stamp | None], found: Mapping[Path, "ScannedFile"]) -> None:
        """Store results. A scan does so in chunks: one that is stopped resumes after the last chunk."""
        if self._database is None:
            return
        rows = []
        for path, seen in found.items():
            stamp = stamps[path]
            # A file that could not be read may become readable without a change of size or time.
            if stamp is not None and seen.digest and seen.size_bytes == stamp[0]:
                key, row = _key(path), (*stamp, seen.digest, *_columns(seen.found))
                rows.append((key, *row, _today(), _checksum(key, row)))
        with suppress(sqlite3.Error, OverflowError):
            try:
                self._insert(rows)
            except sqlite3.OperationalError:  # the largest size is reached
                _make_room(self._database, is_full=True)
                self._insert(rows)

    def _insert(self, rows: list[tuple[Any, ...]]) -> None:
        assert self._database is not None
        marks = ", ".join("?" for _ in f"{_COLUMNS}, {_OWN_COLUMNS}".split(","))
        with self._database:
            self._database.executemany(f"INSERT OR REPLACE INTO files VALUES (?, {marks})", rows)


def _open(file: Path) -> sqlite3.Connection:
    if file.exists() and not file.is_file():  # opening a pipe would block
        raise sqlite3.OperationalError("not a file")
    database = sqlite3.connect(file, timeout=10)
    columns = f"{_COLUMNS}, {_OWN_COLUMNS}"
    database.execute(f"CREATE TABLE IF NOT EXISTS files (path BLOB PRIMARY KEY, {columns}) WITHOUT ROWID")
    _make_room(database)
    return database


def _make_room(database: sqlite3.Connection, *, is_full: bool = False) -> None:
    """Keep the database below its largest size: delete the half of the rows that was not used for longest."""
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
    if isinstance(found, str):  # a decoder's message may hold what is not text
        return (found.encode("utf-8", "replace").decode(), *[None] * 6)
    return (None, *astuple(found))


def _read_row(row: tuple[Any, ...]) -> "ScannedFile":
    from fitroom.data.opening import Header
    from fitroom.data.scan import ScannedFile

    size_bytes, _, digest, reason, *header = row
    return ScannedFile(digest, size_bytes, Header(*header) if reason is None else reason)


def _key(path: Path) -> bytes:
    return os.fsencode(os.path.abspath(path))
