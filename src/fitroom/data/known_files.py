"""What earlier scans found, on disk: a file is known by its path as long as its size and time stay the same.

SQLite does what a cache shared by processes needs: it survives being killed, and two may write at once. Whatever goes
wrong with it, the files are just looked at again.
"""

import os
import sqlite3
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from fitroom.environment import cache_folder

_VERSION = 1
"""Of what a look at a file finds: another number, and all files are looked at again."""

Stamp = tuple[int, int]
Row = tuple[str, str | None, str, int, int, int]

_TABLE = """
CREATE TABLE IF NOT EXISTS files (
  path BLOB PRIMARY KEY, size INTEGER, time INTEGER,
  digest TEXT, reason TEXT, format TEXT, width INTEGER, height INTEGER, progressive INTEGER
) WITHOUT ROWID
"""


class KnownFiles:
    """The cache, open from `with` to its end. Without a cache folder nothing is known and nothing kept."""

    def __init__(self) -> None:
        self._database: sqlite3.Connection | None = None
        folder = cache_folder()
        if folder is None:
            return
        with suppress(sqlite3.Error, OSError):
            folder.mkdir(parents=True, exist_ok=True)
            self._database = sqlite3.connect(folder / f"pictures-{_VERSION}.sqlite3", timeout=10)
            self._database.execute(_TABLE)

    def __enter__(self) -> "KnownFiles":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._database is not None:
            self._database.close()

    def find(self, stamps: Mapping[Path, Stamp | None]) -> dict[Path, Row]:
        """What is known of files that are as they were."""
        found: dict[Path, Row] = {}
        if self._database is None:
            return found
        ask = "SELECT size, time, digest, reason, format, width, height, progressive FROM files WHERE path = ?"
        with suppress(sqlite3.Error):
            for path, stamp in stamps.items():
                row = self._database.execute(ask, (_key(path),)).fetchone()
                if row is not None and stamp == row[:2]:
                    found[path] = row[2:]
        return found

    def keep(self, rows: Mapping[Path, tuple[Stamp | None, Row]]) -> None:
        """Keep what was found, at once: a scan that is stopped goes on where it was."""
        if self._database is None:
            return
        # A file that could not be read may be readable next time without having changed.
        values = [(_key(path), *stamp, *row) for path, (stamp, row) in rows.items() if stamp is not None and row[0]]
        with suppress(sqlite3.Error), self._database:
            self._database.executemany(f"INSERT OR REPLACE INTO files VALUES ({','.join('?' * 9)})", values)


def _key(path: Path) -> bytes:
    return os.fsencode(os.path.abspath(path))
