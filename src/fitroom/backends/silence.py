"""What frameworks write to stderr of themselves, kept away from people and shown when it matters."""

import os
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from typing import Any, BinaryIO

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
        with tempfile.TemporaryFile() as file, _python_stderr_on_descriptor():
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


@contextmanager
def _python_stderr_on_descriptor() -> Iterator[None]:
    """Have `sys.stderr` write to file descriptor 2 where something else has taken its place.

    A live view of rich puts its own object there and prints what it is given on a handle of its own, past the
    descriptor: a logger's traceback would be seen. A handler that a framework makes meanwhile keeps the file, so it is
    never closed.
    """
    replaced = sys.stderr
    if replaced is None or _writes_to_descriptor(replaced):
        yield
        return
    own = open(_STDERR, "w", closefd=False, buffering=1, encoding="utf-8", errors="backslashreplace")  # noqa: SIM115
    sys.stderr = own
    try:
        yield
    finally:
        own.flush()
        if sys.stderr is own:
            sys.stderr = replaced


def _writes_to_descriptor(stream: Any) -> bool:
    try:
        return bool(stream.fileno() == _STDERR) and isinstance(stream, TextIOWrapper)
    except (AttributeError, OSError, ValueError):
        return False
