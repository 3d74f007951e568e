"""The parts of a batch within a traced step: a loop over them, and each of them taken out of the batch."""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import keras
import numpy as np
from jax.experimental.sparse import BCOO

from fitroom.backends.jax.scope import MICRO_BATCH, PARTS
from fitroom.errors import ModelError

DoPart = Callable[[Any, Any, Any], tuple[Any, Any]]
"""`do(carry, part, row)`: the next carry, and what is stacked over the parts. `part` is a `Part`."""


class Part:
    """Some samples of the batch."""

    def __init__(self, data: Any, start: Any, size: int) -> None:
        self.size = size
        with jax.named_scope(MICRO_BATCH):
            taken = jax.tree.map(lambda array: _taken(array, start, size), data)
        self.x, self.y, self.sample_weight = keras.utils.unpack_x_y_sample_weight(taken)


def _taken(array: Any, start: Any, size: int) -> Any:
    # In rows, for which there is one layout: XLA would turn the whole batch into another one that its kernels like.
    rows = jax.lax.dynamic_slice_in_dim(array.reshape(array.shape[0], -1), start, size)
    return rows.reshape(size, *array.shape[1:])


def has_sparse(data: Any) -> bool:
    """Whether there are sparse tensors in a batch, which has no parts then."""
    return any(isinstance(leaf, BCOO) for leaf in jax.tree.leaves(data, is_leaf=lambda leaf: isinstance(leaf, BCOO)))


def over_parts(do: DoPart, carry: Any, data: Any, sizes: Sequence[int], rows: Any, *, looped: bool) -> tuple[Any, Any]:
    """Do something for each part and its row of `rows`: the last carry, and what was stacked.

    Parts of one size run in one loop of the compiled program; with `looped` False there is none.
    """
    if has_sparse(data):
        raise ModelError(
            "A batch of sparse tensors cannot be cut into micro-batches on JAX.",
            hint="leave `micro_batch` out, and choose a batch_size that fits whole",
        )
    first, start, stacked = 0, 0, []
    for size, equal in itertools.groupby(sizes):
        count = len(list(equal))
        starts: Any = start + size * np.arange(count, dtype="int32")
        of_parts = rows[first : first + count]
        first, start = first + count, start + size * count
        if looped:
            with jax.named_scope(PARTS):
                carry, found = jax.lax.scan(_round(do, data, size), carry, (starts, of_parts))
            stacked.append(found)
            continue
        for at in zip(starts, of_parts, strict=True):
            carry, found = _round(do, data, size)(carry, at)
            stacked.append(jax.tree.map(lambda value: value[None], found))
    return carry, jax.tree.map(lambda *found: jax.numpy.concatenate(found), *stacked)


def _round(do: DoPart, data: Any, size: int) -> Callable[[Any, Any], tuple[Any, Any]]:
    return lambda carry, at: do(carry, Part(data, at[0], size), at[1])
