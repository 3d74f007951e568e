"""A batch on the host, and how it is cut."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fitroom.train.structure import leaves, mapped


@dataclass(frozen=True, kw_only=True)
class Batch:
    """What one optimizer update sees. Its arrays stay on the host until a step takes them."""

    x: Any
    """A structure (dicts, lists, tuples) of arrays whose first axis is the sample; NumPy's, or the framework's."""

    y: Any = None
    sample_weight: Any = None

    @property
    def size(self) -> int:
        """The number of samples."""
        return int(next(leaves(self.x)).shape[0])

    def part(self, start: int, stop: int) -> "Batch":
        """Some of its samples; a view, where the arrays give one."""
        return self.mapped(lambda array: _cut(array, start, stop))

    def parts(self, micro_batch: int) -> list["Batch"]:
        """The batch cut so that no part has more than `micro_batch` samples."""
        if micro_batch >= self.size:
            return [self]
        ends = [0]
        for size in cut_sizes(self.size, micro_batch):
            ends.append(ends[-1] + size)
        return [self.part(start, stop) for start, stop in itertools.pairwise(ends)]

    def mapped(self, function: Callable[[Any], Any]) -> "Batch":
        """The batch with `function` applied to each of its arrays."""
        return Batch(
            x=mapped(function, self.x),
            y=mapped(function, self.y),
            sample_weight=mapped(function, self.sample_weight),
        )

    def data(self) -> tuple[Any, ...]:
        """As Keras's `train_step` takes it."""
        if self.sample_weight is not None:
            return (self.x, self.y, self.sample_weight)
        return (self.x,) if self.y is None else (self.x, self.y)


def cut_sizes(num_samples: int, micro_batch: int) -> list[int]:
    """As few parts as possible, as even as possible: BatchNormalization likes no tiny last part.

    >>> cut_sizes(100, 32)
    [25, 25, 25, 25]
    >>> cut_sizes(7, 3)
    [3, 2, 2]
    """
    num_parts = -(-num_samples // micro_batch)
    size, left = divmod(num_samples, num_parts)
    return [size + 1] * left + [size] * (num_parts - left)


def _cut(array: Any, start: int, stop: int) -> Any:
    if hasattr(array, "__getitem__"):
        return array[start:stop]
    import tensorflow as tf  # its sparse tensors know no slices

    rest = array.shape[1:]
    return tf.sparse.slice(array, [start] + [0] * len(rest), [stop - start, *rest])
