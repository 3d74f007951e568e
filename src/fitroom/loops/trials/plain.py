"""Settings and results as plain values: what JSON can hold, so that rows are readable and trials have an identity."""

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fitroom.errors import InputError

_DEEPEST = 50


class NotPlainError(TypeError):
    """A value that JSON cannot hold; the text says where it is and what it is."""


def convert_to_plain(value: Any, where: str = "", *, depth: int = 0) -> Any:
    """Convert a value to what JSON holds: scalars of NumPy and the frameworks, tuples and paths too.

    Numbers that are not finite stay as they are. Raises NotPlainError.

    >>> convert_to_plain({"sizes": (32, 64), "folder": Path("flowers")})
    {'sizes': [32, 64], 'folder': 'flowers'}
    """
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value)
    if isinstance(value, Path):
        return str(value)
    if depth < _DEEPEST and isinstance(value, list | tuple):
        return [convert_to_plain(one, f"{where}[{at}]", depth=depth + 1) for at, one in enumerate(value)]
    if depth < _DEEPEST and isinstance(value, Mapping):
        if wrong := [key for key in value if not isinstance(key, str)]:
            raise NotPlainError(f"{_name(where)} has the key {wrong[0]!r}, which is no text")
        return {key: convert_to_plain(one, f"{where}[{key!r}]", depth=depth + 1) for key, one in value.items()}
    if getattr(value, "shape", None) == () and callable(getattr(value, "item", None)):  # NumPy, PyTorch, JAX
        return convert_to_plain(value.item(), where, depth=depth + 1)
    if getattr(value, "shape", None) == () and callable(getattr(value, "numpy", None)):  # TensorFlow
        return convert_to_plain(value.numpy().item(), where, depth=depth + 1)
    kind = type(value)
    raise NotPlainError(f"{_name(where)} is of type {kind.__module__}.{kind.__qualname__}")


def parse_settings(settings: Any) -> list[dict[str, Any]]:
    """Check the settings of all trials and return them as plain values. Raises InputError for the first wrong one."""
    if isinstance(settings, Mapping | str) or not hasattr(settings, "__iter__"):
        raise InputError(
            f"`settings` must be a list of dicts, one for each trial. Received: {type(settings).__name__}.",
            hint='write [{"batch_size": 32}, {"batch_size": 64}]',
        )
    plain: list[dict[str, Any]] = []
    seen: dict[str, int] = {}
    for number, one in enumerate(settings, 1):
        if not isinstance(one, Mapping):
            raise InputError(
                f"Each of `settings` must be a dict of the function's arguments. "
                f"Received: {one!r:.200}, number {number}.",
                hint='write [{"batch_size": 32}, {"batch_size": 64}]',
            )
        try:
            plain.append(convert_to_plain(one))
        except NotPlainError as error:
            raise InputError(
                f"Settings must be numbers, texts, True, False, None, and lists and dicts of these. In number {number} "
                f"{error}.",
                hint="name it by a text and make the object within the function; data that all trials share can be "
                "used by the function directly, or bound with functools.partial",
            ) from None
        key = make_key(plain[-1])
        if key in seen:
            raise InputError(
                f"The settings number {seen[key]} and {number} are the same: {format_settings(plain[-1])}.",
                hint='tell them apart by one more argument, such as "seed" or "fold"',
            )
        seen[key] = number
    if not plain:
        raise InputError("`settings` is empty: there is no trial to run.", hint="give one dict for each trial")
    return plain


def make_key(settings: Mapping[str, Any]) -> str:
    """The identity of a trial: a hash of its settings, whatever their order.

    >>> make_key({"a": 1, "b": 2}) == make_key({"b": 2, "a": 1})
    True
    """
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:16]


def format_settings(settings: Mapping[str, Any], *, longest: int = 60) -> str:
    """Settings on one line.

    >>> format_settings({"batch_size": 32, "rate": 0.001, "model": "xception"})
    'batch_size=32, rate=0.001, model=xception'
    """
    text = ", ".join(f"{name}={format_value(value)}" for name, value in settings.items())
    return text if len(text) <= longest else f"{text[: longest - 3]}..."


def format_value(value: Any) -> str:
    """One setting or result for people: four digits of a number that is not whole.

    >>> format_value(0.812345), format_value(3), format_value(None), format_value([1, 2])
    ('0.8123', '3', 'none', '[1, 2]')
    """
    if value is None:
        return "none"
    if isinstance(value, float):
        return f"{value:.4g}" if math.isfinite(value) else str(value)
    return value if isinstance(value, str) else json.dumps(value)


def find_differing(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """The names of settings that are not the same in all; all names where there is one set of settings only.

    >>> find_differing([{"rate": 0.1, "epochs": 5}, {"rate": 0.2, "epochs": 5}])
    ['rate']
    """
    names = dict.fromkeys(name for one in settings for name in one)
    if len(settings) < 2:
        return list(names)
    return [name for name in names if len({format_settings({name: one.get(name, "-")}) for one in settings}) > 1]


def _name(where: str) -> str:
    return where.lstrip("[").replace("]", "", 1) if where.startswith("[") else where or "the value"
