"""Whether values that were read from a file have the types that they must have: dataclasses, and dicts of JSON."""

import dataclasses
import types
import typing
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, TypeVar

_WORDS = {
    int: "a whole number",
    float: "a number",
    str: "a text",
    bool: "true or false",
    dict: "an object",
    list: "a list",
    None: "null",
}
_LARGEST_NUMBER = 2**63

T = TypeVar("T")


def check_types(value: Any) -> None:
    """Raise TypeError where a field of a dataclass, or of one within it, is of another type than it is declared as.

    An int is a float too, as in JSON; annotations that are not known here are not checked.
    """
    kind: Any = type(value)
    for name, annotation in _hints(kind).items():
        found = getattr(value, name)
        if not _is_of(found, annotation):
            wanted = getattr(annotation, "__name__", str(annotation))
            raise TypeError(f"`{name}` of {kind.__name__} must be {wanted}; it is {repr(found)[:80]}")


@cache
def _hints(kind: type) -> dict[str, Any]:
    try:
        hints = typing.get_type_hints(kind)
    except NameError:  # a name that is imported for type checkers alone
        return {}
    return {field.name: hints[field.name] for field in dataclasses.fields(kind)}


def _is_of(value: Any, annotation: Any) -> bool:
    origin, parts = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        return any(_is_of(value, part) for part in parts)
    if origin is typing.Literal:
        return value in parts
    if origin is tuple:
        ends = len(parts) == 2 and parts[1] is Ellipsis
        if not isinstance(value, tuple) or not (ends or len(value) == len(parts)):
            return False
        return all(_is_of(one, parts[0] if ends else parts[number]) for number, one in enumerate(value))
    if origin in (list, Sequence):
        return isinstance(value, list | tuple) and all(_is_of(one, parts[0]) for one in value)
    if origin in (dict, Mapping):
        return isinstance(value, Mapping) and all(_is_of(one, parts[1]) for one in value.values())
    if annotation is Any or not isinstance(annotation, type):
        return True
    if dataclasses.is_dataclass(annotation):
        if not isinstance(value, annotation):
            return False
        check_types(value)
        return True
    if annotation in (int, float):
        kinds = int if annotation is int else (int, float)
        return isinstance(value, kinds) and not isinstance(value, bool)
    return isinstance(value, annotation)


def read_known_fields(kind: type[T], values: Any) -> T:
    """Make a dataclass, all fields of which have defaults, of what a JSON object has of them.

    A field that is missing or of another type than it is declared as keeps its default; what is not declared is left
    out. So files of other versions can be read as far as they are known.
    """
    found: dict[str, Any] = {}
    for name, annotation in _hints(typing.cast("Any", kind)).items():
        value = values.get(name) if isinstance(values, Mapping) else None
        if dataclasses.is_dataclass(annotation):
            found[name] = read_known_fields(typing.cast("type[Any]", annotation), value)
        elif value is not None and _is_of(value, annotation):
            found[name] = value
    return kind(**found)


def check_fields(value: Any, fields: Mapping[str, Any]) -> None:
    """Raise ValueError where a value read from JSON is no dict with these fields of these types.

    A type is that of the field, a tuple of several, or `None` among them for a field that may be null.

    >>> check_fields({"epochs": "ten"}, {"epochs": int})
    Traceback (most recent call last):
    ValueError: `epochs` must be a whole number; it is 'ten'
    """
    if not isinstance(value, dict):
        raise ValueError("it is not what fitroom writes")
    for name, kinds in fields.items():
        allowed = kinds if isinstance(kinds, tuple) else (kinds,)
        if name not in value:
            raise ValueError(f"it is not what fitroom writes: it has no `{name}`")
        found = value[name]
        if not any(_is_json_type(found, kind) for kind in allowed):
            words = " or ".join(_WORDS[kind] for kind in allowed)
            raise ValueError(f"`{name}` must be {words}; it is {repr(found)[:80]}")


def _is_json_type(value: Any, kind: Any) -> bool:
    if kind is None:
        return value is None
    if isinstance(value, bool):  # which Python takes for a number
        return kind is bool
    if kind is float:
        return isinstance(value, int | float) and abs(value) < _LARGEST_NUMBER
    if kind is int:
        return isinstance(value, int) and abs(value) < _LARGEST_NUMBER
    return isinstance(value, kind)
