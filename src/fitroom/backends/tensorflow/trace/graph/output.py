"""What an operation of a graph makes."""

import math
from dataclasses import dataclass, field
from typing import Any

import tensorflow as tf

_REFERENCES = (tf.resource, tf.variant)


@dataclass(frozen=True, slots=True)
class Output:
    """What an operation makes: None for a dimension that only the running step knows."""

    shape: tuple[int | None, ...] | None
    dtype: Any

    # Asked for each time that the operation runs, and TensorFlow's types are slow to compare: found once.
    num_elements: int | None = field(init=False, repr=False, compare=False)
    """None where the shape is not known."""

    size_bytes: int = field(init=False, repr=False, compare=False)
    """0 for references, and where the shape is not known."""

    is_int32: bool = field(init=False, repr=False, compare=False)

    is_open: bool = field(init=False, repr=False, compare=False)
    """Whether it takes memory, nobody knows yet how much."""

    def __post_init__(self) -> None:
        number = None if self.shape is None or None in self.shape else math.prod(self.shape)  # type: ignore[arg-type]
        has_size = self.dtype not in _REFERENCES and self.dtype != tf.string
        object.__setattr__(self, "num_elements", number)
        object.__setattr__(self, "size_bytes", (number or 0) * int(self.dtype.size) if has_size else 0)
        object.__setattr__(self, "is_open", number is None and self.dtype not in _REFERENCES)
        object.__setattr__(self, "is_int32", self.dtype == tf.int32)


def shape_of(tensor: Any) -> tuple[int | None, ...] | None:
    """The shape of a tensor of a graph; None where not even its rank is known."""
    return None if tensor.shape.rank is None else tuple(tensor.shape.as_list())
