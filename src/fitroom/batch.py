"""A batch of samples, how it is split into micro-batches, and the structures (dicts, lists, tuples) of arrays in it."""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal


def map_structure(function: Callable[[Any], Any], structure: Any) -> Any:
    """Apply `function` to each array of a structure. None stays None.

    >>> map_structure(abs, {"a": [-1, -2], "b": None})
    {'a': [1, 2], 'b': None}
    """
    if structure is None:
        return None
    if isinstance(structure, dict):
        return {key: map_structure(function, value) for key, value in structure.items()}
    if isinstance(structure, tuple) and hasattr(structure, "_fields"):
        return type(structure)(*(map_structure(function, value) for value in structure))
    if isinstance(structure, list | tuple):
        return type(structure)(map_structure(function, value) for value in structure)
    return function(structure)


def leaves(structure: Any) -> Iterator[Any]:
    """The arrays of a structure in order, without the None among them."""
    if isinstance(structure, dict):
        structure = list(structure.values())
    if isinstance(structure, list | tuple):
        for value in structure:
            yield from leaves(value)
    elif structure is not None:
        yield structure


def is_nested(structure: Any) -> bool:
    """Whether a structure is a dict, list or tuple rather than a single array."""
    return isinstance(structure, dict | list | tuple)


def has_same_structure(first: Any, second: Any) -> bool:
    """Whether two structures differ in nothing but their arrays."""
    if isinstance(first, dict) and isinstance(second, dict):
        return first.keys() == second.keys() and all(has_same_structure(first[key], second[key]) for key in first)
    if isinstance(first, list | tuple) and isinstance(second, list | tuple):
        return len(first) == len(second) and all(map(has_same_structure, first, second))
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

    def slice(self, start: int, stop: int) -> "Batch":
        """The samples from `start` to `stop`; a view, where the arrays give one."""
        return self.map(lambda array: _slice(array, start, stop))

    def micro_batches(self, micro_batch: int) -> list["Batch"]:
        """The batch split so that no micro-batch has more than `micro_batch` samples."""
        if micro_batch >= self.size:
            return [self]
        ends = [0]
        for size in micro_batch_sizes(self.size, micro_batch):
            ends.append(ends[-1] + size)
        return [self.slice(start, stop) for start, stop in itertools.pairwise(ends)]

    def map(self, function: Callable[[Any], Any]) -> "Batch":
        """The batch with `function` applied to each of its arrays."""
        return Batch(
            x=map_structure(function, self.x),
            y=map_structure(function, self.y),
            sample_weight=map_structure(function, self.sample_weight),
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
        fields = (self.x, self.y, self.sample_weight)
        return map_structure(lambda place: fields[place], self.outline)

    def unpacked(self) -> tuple[Any, ...]:
        """`(x,)`, `(x, y)` or `(x, y, sample_weight)`, however the batch was packed."""
        if self.sample_weight is not None:
            return (self.x, self.y, self.sample_weight)
        return (self.x,) if self.y is None else (self.x, self.y)


def micro_batch_sizes(num_samples: int, micro_batch: int) -> list[int]:
    """The sizes of as few micro-batches as possible, as even as possible.

    A tiny last micro-batch would give BatchNormalization statistics of few samples.

    >>> micro_batch_sizes(100, 32)
    [25, 25, 25, 25]
    >>> micro_batch_sizes(7, 3)
    [3, 2, 2]
    """
    count = -(-num_samples // micro_batch)
    size, left = divmod(num_samples, count)
    return [size + 1] * left + [size] * (count - left)


def _slice(array: Any, start: int, stop: int) -> Any:
    if hasattr(array, "__getitem__"):
        return array[start:stop]
    import tensorflow as tf  # its sparse tensors cannot be indexed by slices

    rest = array.shape[1:]
    return tf.sparse.slice(array, [start] + [0] * len(rest), [stop - start, *rest])
