"""How much the micro-batches of a batch change statistics, such as BatchNormalization's.

Each micro-batch changes them from their values before the batch, and the change is then undone: what adds up are the
changes, times the micro-batch's samples over the batch's. There are many small ones, so that all of one dtype are added
up as one vector.
"""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from fitroom.keras_model.state import forward_state


class StatisticsChange:
    """The change of one model's statistics. Its methods can be traced."""

    def __init__(self, model: Any) -> None:
        self._groups: dict[Any, list[Any]] = {}
        for variable in forward_state(model).statistics:
            self._groups.setdefault(variable.value.dtype, []).append(variable.value)

    def zeros(self) -> list[Any]:
        """The sum over no micro-batch: a vector for each dtype."""
        sizes = {dtype: sum(map(_size, group)) for dtype, group in self._groups.items()}
        return [tf.zeros((size,), dtype) for dtype, size in sizes.items()]

    def starts(self) -> list[list[Any]]:
        """The values before a micro-batch."""
        return [[each.read_value() for each in group] for group in self._groups.values()]

    def undo(self, starts: Sequence[Sequence[Any]], changes: Sequence[Any], sample_share: Any) -> list[Any]:
        """Restore the values from before a micro-batch; returns the sum with its changes."""
        sums = []
        for group, start, sofar in zip(self._groups.values(), starts, changes, strict=True):
            outcomes = [each.read_value() for each in group]
            if sofar.dtype.is_floating:
                # A difference, which is 0 to the bit where a layer leaves its statistics alone.
                change = _vector(outcomes) - _vector(start)
                sums.append(sofar + change * tf.cast(sample_share, change.dtype))
            else:
                sums.append(_vector(outcomes))  # counters have no mean: the last outcome
            for variable, value in zip(group, start, strict=True):
                variable.assign(value)
        return sums

    def apply(self, changes: Sequence[Any]) -> None:
        """Apply the change of a whole batch."""
        for group, vector in zip(self._groups.values(), changes, strict=True):
            for variable, flat in zip(group, tf.split(vector, list(map(_size, group))), strict=True):
                value = tf.reshape(flat, variable.shape)
                (variable.assign_add if vector.dtype.is_floating else variable.assign)(value)


def _vector(values: Sequence[Any]) -> Any:
    return tf.concat([tf.reshape(value, (-1,)) for value in values], axis=0)


def _size(variable: Any) -> int:
    return int(variable.shape.num_elements())
