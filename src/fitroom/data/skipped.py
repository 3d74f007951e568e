"""Files that are left out."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fitroom.data.walk import shown

_SHOWN = 5


@dataclass(frozen=True)
class Skipped:
    """A file that is left out, and why."""

    file: Path
    reason: str


def listed(place: Path, skipped: Sequence[Skipped]) -> str:
    """The first of them for an error message, by their names within a folder.

    >>> listed(Path("flowers"), [Skipped(Path("flowers/rose/1.jpg"), "empty file")])
    '1 file cannot be used: rose/1.jpg (empty file)'
    """
    named = []
    for one in skipped[:_SHOWN]:
        path = one.file.relative_to(place) if one.file.is_relative_to(place) else one.file
        named.append(f"{shown(path)} ({one.reason})")
    more = f"; and {len(skipped) - _SHOWN:,} more" if len(skipped) > _SHOWN else ""
    number = "1 file" if len(skipped) == 1 else f"{len(skipped):,} files"
    return f"{number} cannot be used: {'; '.join(named)}{more}"
