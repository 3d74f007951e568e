"""How long a command spent on planning and on evaluation; what `fit` spent is in its readings."""

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

from fitroom.files.durable import read_json, write_json
from fitroom.runs.layout import TIMES_FILE


@contextlib.contextmanager
def timed(folder: Path, name: str) -> Iterator[None]:
    """Add the time of the block to what the run had spent on `name`, in `times.json`. An error adds nothing."""
    started = time.monotonic()
    yield
    with contextlib.suppress(OSError):  # for people to read: no reason to lose a run
        before = _read(folder)
        write_json(folder / TIMES_FILE, before | {name: round(before.get(name, 0.0) + time.monotonic() - started, 3)})


def _read(folder: Path) -> dict[str, float]:
    try:
        return {str(name): float(seconds) for name, seconds in read_json(folder / TIMES_FILE).items()}
    except (OSError, ValueError, AttributeError, TypeError):
        return {}
