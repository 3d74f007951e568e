"""Dicts, lists and tuples of arrays, as models with several inputs or outputs take them."""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal


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


StepName = Literal["train_step", "test_step", "predict_step"]
"""The method of a Keras model that a step is carried out by."""


@dataclass(frozen=True, kw_only=True)
class Batch:
    """What one optimizer update sees. Its arrays stay on the host until a step takes them."""

    x: Any
    """A structure (dicts, lists, tuples) of arrays whose first axis is the sample; NumPy's, or the framework's."""

    y: Any = None
    sample_weight: Any = None

    outline: Any = None
    """How a dataset packed the batch: its tuple, list or named tuple with 0, 1, 2 in the places of x, y and weights, or
    0 alone where it gave `x` by itself. None: packed by Keras, from arrays."""

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
            outline=self.outline,
        )

    def data(self) -> Any:
        """What Keras hands to a model's `train_step`, `test_step` or `predict_step` for this batch.

        >>> Batch(x="images").data(), Batch(x="images", outline=(0,)).data(), Batch(x=["left", "right"]).data()
        ('images', ('images',), (['left', 'right'],))
        """
        if self.outline is None:
            alone = self.y is None and not isinstance(self.x, tuple | list)
            return self.x if alone else self.unpacked()
        parts = (self.x, self.y, self.sample_weight)
        return mapped(lambda place: parts[place], self.outline)

    def unpacked(self) -> tuple[Any, ...]:
        """`(x,)`, `(x, y)` or `(x, y, sample_weight)`, however the batch was packed."""
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
