"""Dicts, lists and tuples of arrays, as models with several inputs or outputs take them."""

from collections.abc import Callable, Iterator
from typing import Any


def mapped(function: Callable[[Any], Any], structure: Any) -> Any:
    """The same structure with `function` applied to each of its arrays; None stays None.

    >>> mapped(abs, {"a": [-1, -2], "b": None})
    {'a': [1, 2], 'b': None}
    """
    if structure is None:
        return None
    if isinstance(structure, dict):
        return {key: mapped(function, value) for key, value in structure.items()}
    if isinstance(structure, tuple) and hasattr(structure, "_fields"):
        return type(structure)(*(mapped(function, value) for value in structure))
    if isinstance(structure, list | tuple):
        return type(structure)(mapped(function, value) for value in structure)
    return function(structure)


def leaves(structure: Any) -> Iterator[Any]:
    """Its arrays, without the None among them."""
    if isinstance(structure, dict):
        structure = list(structure.values())
    if isinstance(structure, list | tuple):
        for value in structure:
            yield from leaves(value)
    elif structure is not None:
        yield structure


def is_nested(structure: Any) -> bool:
    """Whether it is more than one array."""
    return isinstance(structure, dict | list | tuple)


def same_structure(first: Any, second: Any) -> bool:
    """Whether two structures differ in nothing but their arrays."""
    if isinstance(first, dict) and isinstance(second, dict):
        return first.keys() == second.keys() and all(same_structure(first[key], second[key]) for key in first)
    if isinstance(first, list | tuple) and isinstance(second, list | tuple):
        return len(first) == len(second) and all(map(same_structure, first, second))
    return not is_nested(first) and not is_nested(second)
