"""What differs between a run on disk and the one asked for, in words."""

from typing import Any


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
                return f"{inner}: {_shown(before[number])} in the run, nothing now"
            if number >= len(before):
                return f"{inner}: nothing in the run, {_shown(now[number])} now"
            if found := first_difference(before[number], now[number], inner):
                return found
        return None
    if before == now and isinstance(before, bool) == isinstance(now, bool):
        return None
    return f"{what}: {_shown(before)} in the run, {_shown(now)} now"


def _within(what: str, part: str) -> str:
    return f"{what}, {part}" if what else part


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 300 else text[:300] + "..."
