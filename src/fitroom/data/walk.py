"""The files below a folder, whatever people and systems have left there."""

import os
import unicodedata
from collections.abc import Iterator
from pathlib import Path

_LEFT_BY_SYSTEMS = {"__MACOSX", "@eaDir", "Thumbs.db", "desktop.ini", "$RECYCLE.BIN", "System Volume Information"}


def is_hidden(name: str) -> bool:
    """Files that people do not see: those of the system, of version control, of notebooks.

    >>> is_hidden(".ipynb_checkpoints"), is_hidden("daisy")
    (True, False)
    """
    return name.startswith(".") or name in _LEFT_BY_SYSTEMS


def folders_in(folder: Path) -> list[Path]:
    """The folders directly in a folder, hidden ones left out, by name."""
    return sorted(Path(entry.path) for entry in os.scandir(folder) if not is_hidden(entry.name) and _is_folder(entry))


def files_in(folder: Path) -> list[Path]:
    """What else is directly in a folder, hidden files left out, by name."""
    entries = os.scandir(folder)
    return sorted(Path(entry.path) for entry in entries if not is_hidden(entry.name) and not _is_folder(entry))


def files_below(folder: Path) -> Iterator[Path]:
    """All files in a folder and the folders in it, in a fixed order. Links are followed, each folder once.

    A folder that cannot be entered is given itself: whoever reads it as a file finds out why.
    """
    seen: set[tuple[int, int]] = set()
    waiting = [folder]
    while waiting:
        current = waiting.pop()
        try:
            known = os.stat(current)
            if (known.st_dev, known.st_ino) in seen:  # a link to where we have been
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


def shown(name: str | Path) -> str:
    """A name that any screen and file takes: one spelling of each letter, and no bytes that are no text.

    >>> shown("cafe\\u0301") == "café"
    True
    """
    return unicodedata.normalize("NFC", os.fsencode(str(name)).decode("utf-8", "replace"))
