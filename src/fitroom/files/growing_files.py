"""Files that only grow: a run that goes on from a checkpoint cuts them back to how long they were at it."""

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path


class GrowingFiles:
    """Those in a folder whose names match one of some patterns."""

    def __init__(self, folder: Path, patterns: Iterable[str]) -> None:
        self.folder, self.patterns = folder, tuple(patterns)

    def lengths(self) -> dict[str, int]:
        """Each file by its path within the folder, with its bytes."""
        return {path.relative_to(self.folder).as_posix(): path.stat().st_size for path in self._found()}

    def cut_back(self, lengths: dict[str, int]) -> None:
        """What was written since goes, whole files too: it will be written again."""
        for path in self._found():
            length = lengths.get(path.relative_to(self.folder).as_posix(), 0)
            with contextlib.suppress(OSError):
                if not length:
                    path.unlink()
                elif path.stat().st_size > length:
                    os.truncate(path, length)

    def _found(self) -> list[Path]:
        return [path for pattern in self.patterns for path in self.folder.glob(pattern) if path.is_file()]
