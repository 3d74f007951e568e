"""What came of trials: a row for each, and the table of all of them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, get_args

from fitroom.display import RichDisplay
from fitroom.errors import InputError

State = Literal[
    "finished", "failed", "killed", "timed out", "out of memory", "out of host memory", "does not fit", "pruned"
]
"""failed: it raised. killed: its process ended by a signal, or by an exit of its own. does not fit: by its estimate, so
that it was not started. pruned: a tuner stopped it."""

STATES: tuple[str, ...] = get_args(State)
OUT_OF_MEMORY = ("out of memory", "out of host memory")
"""The states after which a trial is tried once more, alone."""


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One row: the settings of a trial and what came of it."""

    number: int
    """Its place in the list of settings, from 1."""

    settings: Mapping[str, Any]
    state: State
    result: Any = None
    """What the function returned, as JSON holds it: a number that is not finite is None."""

    error: str | None = None
    """Why it did not finish, in a sentence."""

    traceback: str | None = field(default=None, repr=False)
    seconds: float | None = None
    """How long its process ran, the last attempt only."""

    attempts: int = 1
    peak_bytes: int | None = None
    """The most that the framework's allocator had in use, where the framework counts."""

    host_bytes: int | None = None
    """The most memory of the host that its process had."""

    device_bytes: int | None = None
    """What was predicted, where a prediction was given."""

    log: Path | None = None
    """What it printed."""

    is_earlier: bool = False
    """Whether the row was in the folder before this call."""

    @property
    def is_finished(self) -> bool:
        """Whether the function returned."""
        return self.state == "finished"

    def to_dict(self) -> dict[str, Any]:
        """As plain values, for JSON."""
        values = {each.name: getattr(self, each.name) for each in fields(self) if each.name != "is_earlier"}
        return values | {"settings": dict(self.settings), "log": str(self.log) if self.log else None}


@dataclass(frozen=True)
class Trials(RichDisplay):
    """The table that `fitroom.trials` returns: a row for each of the settings, in their order."""

    rows: tuple[Trial, ...]
    folder: Path

    def __iter__(self) -> Iterator[Trial]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Trial:
        return self.rows[index]

    @property
    def finished(self) -> tuple[Trial, ...]:
        """The trials whose function returned."""
        return tuple(row for row in self.rows if row.is_finished)

    @property
    def failed(self) -> tuple[Trial, ...]:
        """All others."""
        return tuple(row for row in self.rows if not row.is_finished)

    def best(self, name: str | None = None, *, highest: bool = True) -> Trial:
        """The finished trial with the highest result; of a list, such as a history has, the last value counts.

        Args:
            name: which value of a result that is a dict; None where the result is a number.
            highest: False for the lowest.
        """
        found = [(value, row) for row in self.finished if (value := _read_number(row.result, name)) is not None]
        if not found:
            what = "a number as its result" if name is None else f"the number {name!r} in its result"
            names = ", ".join(sorted(set().union(*(_list_numbers(row.result) for row in self.finished))))
            hint = f"name one that they have: {names}" if names else "return a number, or a dict of numbers"
            if not self.finished and self.rows:
                first = self.rows[0]
                hint = f"none of the {len(self.rows)} trials finished; the first {first.state}: {first.error}"
            raise InputError(f"No finished trial has {what}.", hint=hint)
        return (max if highest else min)(found, key=lambda pair: pair[0])[1]


def _list_numbers(result: Any) -> set[str]:
    return {name for name in result if _read_number(result, name) is not None} if isinstance(result, Mapping) else set()


def _read_number(result: Any, name: str | None) -> float | None:
    value: Any = result
    if name is not None:
        value = result.get(name) if isinstance(result, Mapping) else None
    if isinstance(value, list) and value:  # of a history, the last epoch
        value = value[-1]
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number else None
