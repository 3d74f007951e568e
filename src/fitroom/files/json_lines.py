"""Files of one JSON object a line, which grow while a run is under way."""

import contextlib
import json
import math
import os
from pathlib import Path
from typing import Any

from fitroom.files.durable import NO_LINKS, read_regular_file

_LARGEST_BYTES = 2 * 1024**3


def append_line(path: Path, value: dict[str, Any]) -> None:
    """Append a line. One that cannot be written, as on a full disk, is left out and does not stop a run."""
    with contextlib.suppress(OSError):
        _append(path, value)


def append_line_durably(path: Path, value: dict[str, Any]) -> None:
    """Append a line, and return once it is on the disk. Raises OSError."""
    _append(path, value, syncs=True)


def _append(path: Path, value: dict[str, Any], *, syncs: bool = False) -> None:
    line = json.dumps(finite(value), allow_nan=False).encode() + b"\n"
    with open(path, "a+b", opener=_open_in_place) as file:
        if file.tell():
            file.seek(-1, 2)
            if file.read(1) != b"\n":  # a kill or a full disk cut the last one short
                line = b"\n" + line
        file.write(line)
        if syncs:
            file.flush()
            os.fsync(file.fileno())


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Read all lines. One that was cut short is left out, and a file that does not exist has none."""
    found: list[dict[str, Any]] = []
    with contextlib.suppress(OSError, ValueError):
        for line in read_regular_file(path, largest_bytes=_LARGEST_BYTES).splitlines():
            with contextlib.suppress(ValueError, RecursionError):
                value = json.loads(line)
                if isinstance(value, dict):
                    found.append(value)
    return found


def finite(value: Any) -> Any:
    """Convert a value to what JSON can hold: NaN and infinity to None, other objects to text.

    >>> finite({"loss": float("nan"), "batch": 3, "run_dir": Path("runs/a")})
    {'loss': None, 'batch': 3, 'run_dir': 'runs/a'}
    """
    if isinstance(value, dict):
        return {str(name): finite(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [finite(one) for one in value]
    if isinstance(value, str | bool | int | None):
        return value
    try:
        number = float(value)
    except (TypeError, ValueError):
        return finite(value.tolist()) if hasattr(value, "tolist") else str(value)
    return number if math.isfinite(number) else None


def _open_in_place(path: str, flags: int) -> int:
    """Open a file without following a link, or waiting for the reader of a pipe."""
    return os.open(path, flags | NO_LINKS | getattr(os, "O_NONBLOCK", 0), 0o644)
