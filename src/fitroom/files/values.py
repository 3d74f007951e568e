"""Plain Python values with arrays and tensors among them, encoded as JSON and decoded with their types."""

import sys
from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np

_PLAIN = (bool, int, float, str, type(None))
_DEEPEST = 100
_MARK = "~"


class NotPlainError(TypeError):
    """A value that is more than data: a model, a function, an open file."""


def encode(value: Any, arrays: list[Any], *, depth: int = 0) -> Any:
    """Encode a value as JSON; arrays and tensors in it are appended to `arrays`, not copied. Raises NotPlainError.

    >>> arrays = []
    >>> encode({"best": float("inf"), "shape": (2, 3)}, arrays)
    {'best': inf, 'shape': {'~tuple': [2, 3]}}
    """
    kind = type(value)
    if kind in _PLAIN:
        return value
    if isinstance(value, np.ndarray | np.generic) and (value.dtype.kind in "biufc" or value.dtype.isbuiltin == 2):
        arrays.append(np.asarray(value))
        return {f"{_MARK}array" if isinstance(value, np.ndarray) else f"{_MARK}scalar": len(arrays) - 1}
    if _is_tensor(value):
        arrays.append(sys.modules["keras"].ops.convert_to_numpy(value))
        return {f"{_MARK}tensor": len(arrays) - 1}
    if depth >= _DEEPEST:  # or a list that holds itself
        raise NotPlainError(f"nested deeper than {_DEEPEST}")
    if kind is list:
        if set(map(type, value)) <= set(_PLAIN):  # a long list of losses, in C
            return list(value)
        return [encode(one, arrays, depth=depth + 1) for one in value]
    if kind in (tuple, set, deque):
        inner = encode(list(value), arrays, depth=depth + 1)
        return {f"{_MARK}{kind.__name__}": inner} | ({"maxlen": value.maxlen} if kind is deque else {})
    if isinstance(value, dict):
        if all(type(key) is str and not key.startswith(_MARK) for key in value):
            return {key: encode(one, arrays, depth=depth + 1) for key, one in value.items()}
        return {f"{_MARK}dict": encode([list(pair) for pair in value.items()], arrays, depth=depth + 1)}
    raise NotPlainError(f"{kind.__module__}.{kind.__qualname__}")


def decode(value: Any, arrays: Mapping[int, Any] | list[Any]) -> Any:
    """Decode what `encode` gave, with its arrays."""
    if isinstance(value, list):
        return [decode(one, arrays) for one in value]
    if not isinstance(value, dict):
        return value
    mark = next(iter(value), "")
    if not mark.startswith(_MARK):
        return {key: decode(one, arrays) for key, one in value.items()}
    inner = value[mark]
    if mark == f"{_MARK}array":
        return arrays[inner]
    if mark == f"{_MARK}scalar":
        return arrays[inner][()]
    if mark == f"{_MARK}tensor":
        return sys.modules["keras"].ops.convert_to_tensor(arrays[inner])
    held = decode(inner, arrays)
    if mark == f"{_MARK}deque":
        return deque(held, maxlen=value["maxlen"])
    return {"tuple": tuple, "set": set, "dict": dict}[mark.removeprefix(_MARK)](held)


def _is_tensor(value: Any) -> bool:
    """Whether a value is a tensor of the framework. A variable is not: others may refer to it too."""
    keras = sys.modules.get("keras")  # no tensors where Keras is not imported
    is_value = keras is not None and not hasattr(value, "assign") and not getattr(value, "requires_grad", False)
    return is_value and bool(sys.modules["keras"].ops.is_tensor(value))
