"""What frameworks write to stderr while they start, kept away from people and shown when it matters."""

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

_STDERR = 2


class Held:
    """What was written to stderr meanwhile."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.text = ""
        """All of it, once the block is over."""

    def read(self) -> None:
        """Take it from the file."""
        self._file.seek(0)
        self.text = self._file.read().decode(errors="replace").strip()


@contextmanager
def silenced() -> Iterator[Held]:
    """Hold back what this process writes to stderr, C++ and all. After an error it is written after all.

    >>> with silenced() as held:
    ...     _ = os.write(2, b"oneDNN custom operations are on")
    >>> held.text
    'oneDNN custom operations are on'
    """
    if sys.stderr is not None:
        sys.stderr.flush()
    kept = os.dup(_STDERR)
    with tempfile.TemporaryFile() as file:
        held = Held(file)
        os.dup2(file.fileno(), _STDERR)
        try:
            yield held
        except BaseException:
            os.dup2(kept, _STDERR)
            held.read()
            os.write(_STDERR, held.text.encode() + b"\n" if held.text else b"")
            raise
        finally:
            if sys.stderr is not None:
                sys.stderr.flush()
            os.dup2(kept, _STDERR)
            os.close(kept)
            held.read()
