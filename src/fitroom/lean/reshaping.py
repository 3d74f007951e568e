"""Where channels lie after a reshape."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from fitroom.lean.channels import Axis, Channels, Layout

Sizes = Sequence[int | None]


def reshape_layout(channels: Channels, layout: Layout, before: Sizes, after: Sizes, reason: str) -> Layout:
    """The layout of a reshaped tensor. Channels that the reshape mixes are pinned.

    `before` and `after` are whole shapes; an unknown size may only stand where both have it.
    """
    found: list[Axis] = [None] * len(after)
    blocks = list(_blocks(before, after))
    for old, new in blocks:
        carried = [axis for axis in old if layout[axis] is not None]
        if not carried:
            continue
        flat = _flat_channels(layout, before, old) if len(carried) == 1 else None
        placed = _spread(flat, [after[axis] for axis in new]) if flat is not None else None
        if placed is None:
            for axis in carried:
                channels.pin(layout[axis], reason)
        else:
            found[new[placed[0]]] = placed[1]
    kept = {axis for old, _ in blocks for axis in old}
    for axis in set(range(len(before))) - kept:
        channels.pin(layout[axis], reason)
    return tuple(found)


def _blocks(before: Sizes, after: Sizes) -> Iterator[tuple[list[int], list[int]]]:
    """Runs of axes of both shapes with the same number of elements, as short as can be."""
    start, end = 0, 0
    while start < len(before) or end < len(after):
        old: list[int] = []
        new: list[int] = []
        left: int | None = 1
        right: int | None = 1
        if start < len(before):
            old.append(start)
            left, start = _times(left, before[start]), start + 1
        if end < len(after):
            new.append(end)
            right, end = _times(right, after[end]), end + 1
        while left != right:
            grows_old = right is None or (left is not None and left < right)
            if grows_old and start < len(before):
                old.append(start)
                left, start = _times(left, before[start]), start + 1
            elif end < len(after):
                new.append(end)
                right, end = _times(right, after[end]), end + 1
            else:
                return
        yield old, new


def _times(product: int | None, size: int | None) -> int | None:
    return None if product is None or size is None else product * size


def _flat_channels(layout: Layout, before: Sizes, axes: list[int]) -> Any:
    """The channel of each element of these axes, flattened; None where a size is unknown."""
    sizes = [size for axis in axes if (size := before[axis]) is not None]
    if len(sizes) < len(axes):
        return layout[axes[0]] if len(axes) == 1 else None
    place = next(number for number, axis in enumerate(axes) if layout[axis] is not None)
    aside = [1] * len(axes)
    aside[place] = -1
    return np.broadcast_to(layout[axes[place]].reshape(aside), sizes).reshape(-1)


def _spread(flat: Any, sizes: Sizes) -> tuple[int, Any] | None:
    """The axis along which the channels lie if the elements get these sizes, and its channels; None if they mix."""
    if len(sizes) == 1:
        return 0, flat
    if any(size is None for size in sizes):
        return None
    table = flat.reshape(sizes)
    for axis, size in enumerate(sizes):
        if size is None or (size == 1 and flat.size != 1):
            continue
        rows = np.moveaxis(table, axis, 0).reshape(size, -1)
        if (rows == rows[:, :1]).all():
            return axis, rows[:, 0]
    return None
