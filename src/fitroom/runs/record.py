"""`run.json`: the description and the state of a run, and how another description differs from it."""

from pathlib import Path
from typing import Any, Literal

from fitroom.errors import InputError
from fitroom.files.durable import read_json
from fitroom.files.field_types import check_fields

FORMAT = 1
State = Literal["running", "interrupted", "finished"]
STATES = ("running", "interrupted", "finished")

FRESH_START = "fresh_start"
"""A field of run.json: the largest micro-batch, by "training" and "validation", that a process may try."""

_FIELDS = {"state": str, "epochs": int}


def read_run(path: Path) -> dict[str, Any] | None:
    """Read run.json; None where there is none. Raises InputError where it cannot be used."""
    try:
        record = read_json(path)
        check_fields(record, {"format": int})
        if record["format"] <= FORMAT:
            check_fields(record, _FIELDS)
            if record["state"] not in STATES:
                raise ValueError(f"`state` must be one of {', '.join(STATES)}; it is {record['state']!r}")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        said = error.strerror if isinstance(error, OSError) else error
        raise InputError(
            f"{path} cannot be read: {said}.", hint="restore it from a backup, or give another `run_dir`"
        ) from None
    if record["format"] > FORMAT:
        raise InputError(
            f"{path} was written by a newer fitroom (format {record['format']}, known up to {FORMAT}).",
            hint="pip install --upgrade fitroom",
        )
    found: dict[str, Any] = record
    return found


def first_difference(before: Any, now: Any, what: str = "") -> str | None:
    """The first place where two JSON values differ, or None where they do not.

    >>> first_difference({"model": {"layers": ["Dense units=5"]}}, {"model": {"layers": ["Dense units=6"]}})
    "model, layers, number 1: 'Dense units=5' in the run, 'Dense units=6' now"
    """
    if isinstance(before, dict) and isinstance(now, dict):
        for key in [*now, *(key for key in before if key not in now)]:
            found = first_difference(before.get(key), now.get(key), _within(what, str(key)))
            if found:
                return found
        return None
    if isinstance(before, list) and isinstance(now, list):
        for number in range(max(len(before), len(now))):
            inner = _within(what, f"number {number + 1}")
            if number >= len(now):
                return f"{inner}: {_shorten(before[number])} in the run, nothing now"
            if number >= len(before):
                return f"{inner}: nothing in the run, {_shorten(now[number])} now"
            if found := first_difference(before[number], now[number], inner):
                return found
        return None
    if before == now and isinstance(before, bool) == isinstance(now, bool):
        return None
    return f"{what}: {_shorten(before)} in the run, {_shorten(now)} now"


def _within(what: str, part: str) -> str:
    return f"{what}, {part}" if what else part


def _shorten(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 300 else text[:300] + "..."
