"""What frameworks write to stderr of themselves, kept away from people and shown when it matters."""

import os
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

_STDERR = 2
_ONE_AT_A_TIME = threading.RLock()
"""There is one stderr: of two threads that hold it back, the later to end would put back the file of the other."""


class Held:
    """What was written to stderr meanwhile."""

    def __init__(self) -> None:
        self.text = ""
        """All of it, once the block is over."""

    def read(self, file: BinaryIO) -> None:
        """Take it from the file."""
        file.seek(0)
        self.text = file.read().decode(errors="replace").strip()


@contextmanager
def silenced() -> Iterator[Held]:
    """Hold back what this process writes to stderr, C++ and all. After an error it is written after all.

    >>> with silenced() as held:
    ...     _ = os.write(2, b"oneDNN custom operations are on")
    >>> held.text
    'oneDNN custom operations are on'
    """
    held = Held()
    with _ONE_AT_A_TIME:
        if sys.stderr is not None:
            sys.stderr.flush()
        try:
            kept = os.dup(_STDERR)
        except OSError:  # closed, as `2>&-` does: there is nobody to spare
            yield held
            return
        with tempfile.TemporaryFile() as file:
            os.dup2(file.fileno(), _STDERR)
            try:
                yield held
            except BaseException:
                os.dup2(kept, _STDERR)
                held.read(file)
                os.write(_STDERR, held.text.encode() + b"\n" if held.text else b"")
                raise
            finally:
                if sys.stderr is not None:
                    sys.stderr.flush()
                os.dup2(kept, _STDERR)
                os.close(kept)
                held.read(file)
