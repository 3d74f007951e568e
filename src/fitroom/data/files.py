"""Files below a folder: walking it, names for messages, and the files that are left out."""

import os
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

_SYSTEM_NAMES = {"__MACOSX", "@eaDir", "Thumbs.db", "desktop.ini", "$RECYCLE.BIN", "System Volume Information"}


def is_hidden(name: str) -> bool:
    """Whether a file or folder belongs to the system, to version control or to notebooks rather than to the data.

    >>> is_hidden(".ipynb_checkpoints"), is_hidden("daisy")
    (True, False)
    """
    return name.startswith(".") or name in _SYSTEM_NAMES


def folders_in(folder: Path) -> list[Path]:
    """The folders directly in a folder, sorted by name, without hidden ones."""
    return sorted(Path(entry.path) for entry in os.scandir(folder) if not is_hidden(entry.name) and _is_folder(entry))


def files_in(folder: Path) -> list[Path]:
    """What is directly in a folder and is no folder, sorted by name, without hidden files."""
    entries = os.scandir(folder)
    return sorted(Path(entry.path) for entry in entries if not is_hidden(entry.name) and not _is_folder(entry))


def files_below(folder: Path) -> Iterator[Path]:
    """All files in a folder and in the folders below it, in a fixed order. Links are followed, each folder once.

    A folder that cannot be entered is yielded itself: reading it as a file fails with the reason.
    """
    seen: set[tuple[int, int]] = set()
    waiting = [folder]
    while waiting:
        current = waiting.pop()
        try:
            known = os.stat(current)
            if (known.st_dev, known.st_ino) in seen:  # a link to a folder that was visited
                continue
            seen.add((known.st_dev, known.st_ino))
            files, folders = files_in(current), folders_in(current)
        except OSError:
            yield current
            continue
        yield from files
        waiting.extend(reversed(folders))


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself
        return False


def display_name(name: str | Path) -> str:
    """A file name as text that can be printed anywhere: in Unicode NFC, with bytes that are not UTF-8 replaced.

    >>> display_name("cafe\\u0301") == "café"
    True
    """
    return unicodedata.normalize("NFC", os.fsencode(str(name)).decode("utf-8", "replace"))


_MAX_LISTED = 5


@dataclass(frozen=True)
class Skipped:
    """A file that is left out, and the reason."""

    file: Path
    reason: str


def list_skipped(place: Path, skipped: Sequence[Skipped]) -> str:
    """The first few skipped files and the reasons, for an error message, named relative to a folder.

    >>> list_skipped(Path("flowers"), [Skipped(Path("flowers/rose/1.jpg"), "empty file")])
    '1 file cannot be used: rose/1.jpg (empty file)'
    """
    named = []
    for one in skipped[:_MAX_LISTED]:
        path = one.file.relative_to(place) if one.file.is_relative_to(place) else one.file
        named.append(f"{display_name(path)} ({one.reason})")
    more = f"; and {len(skipped) - _MAX_LISTED:,} more" if len(skipped) > _MAX_LISTED else ""
    number = "1 file" if len(skipped) == 1 else f"{len(skipped):,} files"
    return f"{number} cannot be used: {'; '.join(named)}{more}"
