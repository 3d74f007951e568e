"""Files that only grow. A run that is resumed truncates them to their length at its checkpoint."""

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path


class GrowingFiles:
    """The files in a folder whose names match one of the patterns."""

    def __init__(self, folder: Path, patterns: Iterable[str]) -> None:
        self.folder, self.patterns = folder, tuple(patterns)

    def lengths(self) -> dict[str, int]:
        """The length in bytes of each file, by its path within the folder."""
        return {path.relative_to(self.folder).as_posix(): path.stat().st_size for path in self._found()}

    def truncate(self, lengths: dict[str, int]) -> None:
        """Remove what was written since, whole files too: it will be written again."""
        for path in self._found():
            length = lengths.get(path.relative_to(self.folder).as_posix(), 0)
            with contextlib.suppress(OSError):
                if not length:
                    path.unlink()
                elif path.stat().st_size > length:
                    os.truncate(path, length)

    def _found(self) -> list[Path]:
        return [path for pattern in self.patterns for path in self.folder.glob(pattern) if path.is_file()]
