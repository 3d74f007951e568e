"""What operations on whole tensors do with channels: sums, concatenations, reshapes, slices."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from fitroom.lean.calls import Call, keep
from fitroom.lean.channels import Axis, Blocks, Channels, Layout
from fitroom.lean.reshaping import reshape_layout


def elementwise(channels: Channels, call: Call) -> tuple[Layout, ...]:
    """Sums, products and the like of tensors: axes are aligned from the last, an axis of size 1 is repeated."""
    rank = len(call.outputs[0])
    found: list[Axis] = []
    for axis in range(rank):
        parts = [
            layout[axis - rank + len(layout)]
            for layout, shape in zip(call.layouts, call.shapes, strict=True)
            if axis - rank + len(shape) >= 0
            and not _is_repeated(shape[axis - rank + len(shape)], call.outputs[0][axis])
        ]
        joined = parts[0] if parts else None
        for part in parts[1:]:
            joined = channels.join(joined, part, f"{call.name} takes tensors whose channels are kept")
        found.append(joined)
    for layout, shape in zip(call.layouts, call.shapes, strict=True):
        for channels_here, size in zip(layout, shape, strict=True):
            if size == 1:
                channels.pin(channels_here, f"{call.name} repeats a single channel")
    return (tuple(found),)


def _is_repeated(size: int | None, result: int | None) -> bool:
    return size == 1 and result != 1


def concatenation(channels: Channels, call: Call) -> tuple[Layout, ...]:
    """The channels of all parts along its axis; along the others, the parts are joined."""
    axis = call.layer.axis % len(call.outputs[0])
    found: list[Axis] = []
    for place in range(len(call.outputs[0])):
        parts = [layout[place] for layout in call.layouts]
        if place != axis:
            joined = parts[0]
            for part in parts[1:]:
                joined = channels.join(joined, part, f"{call.name} takes tensors whose channels are kept")
            found.append(joined)
        elif all(part is None for part in parts):
            found.append(None)
        else:
            found.append(np.concatenate([_fixed(channels, call, n, place) for n in range(len(parts))]))
    return (tuple(found),)


def _fixed(channels: Channels, call: Call, number: int, axis: int) -> Any:
    """The channels of one part of a concatenation; those of a part that is kept whole are pinned."""
    here = call.layouts[number][axis]
    if here is not None:
        return here
    made = channels.make_fixed((id(call.layer), number, axis), call.shapes[number][axis] or 0)
    channels.pin(made, f"{call.name} takes a tensor whose channels are kept")
    return made


def split(channels: Channels, call: Call) -> tuple[Layout, ...]:
    """A split into parts of equal size, each of which must lose as many channels; others keep what they split."""
    sections, axis = call.layer.indices_or_sections, call.layer.axis % len(call.shapes[0])
    here = call.layouts[0][axis]
    if here is None:
        return tuple(call.layouts[0] for _ in call.outputs)
    if not isinstance(sections, int):
        return keep(channels, call)
    channels.blocks.append(Blocks(channels=here, count=sections, reason=f"{call.name} splits into {sections} parts"))
    return tuple((*call.layouts[0][:axis], part, *call.layouts[0][axis + 1 :]) for part in np.split(here, sections))


def get_item(channels: Channels, call: Call) -> tuple[Layout, ...]:
    """Numbers and slices between brackets, such as `x[:, 0]`: the axes that are taken whole stay."""
    key = call.arguments.args[1]
    items = list(key) if isinstance(key, tuple) else [key]
    if not all(each is None or each is Ellipsis or isinstance(each, int | slice) for each in items):
        return keep(channels, call)
    layout = call.layouts[0]
    missing = len(layout) - sum(each is not None and each is not Ellipsis for each in items)
    place = items.index(Ellipsis) if Ellipsis in items else len(items)
    items[place : place + 1] = [slice(None)] * missing
    found: list[Axis] = []
    axes = iter(layout)
    for item in items:
        axis = None if item is None else next(axes)
        if item == slice(None):
            found.append(axis)
            continue
        channels.pin(axis, f"{call.name} takes a part of the axis of channels")
        if not isinstance(item, int):
            found.append(None)
    return (tuple(found),)


def reduction(channels: Channels, call: Call) -> tuple[Layout, ...]:
    """A mean or sum over axes that carry no channels."""
    layout, axes = call.layouts[0], call.layer.axis
    rank = len(layout)
    axes = range(rank) if axes is None else [axes] if isinstance(axes, int) else axes
    reduced = {axis % rank for axis in axes}
    for axis in reduced:
        channels.pin(layout[axis], f"{call.name} reduces the axis of channels")
    if call.layer.keepdims:
        return (tuple(None if axis in reduced else each for axis, each in enumerate(layout)),)
    return (tuple(each for axis, each in enumerate(layout) if axis not in reduced),)


def reshape(channels: Channels, call: Call) -> tuple[Layout, ...]:
    """The channels that stay together; those that it mixes are kept."""
    layer, shape = call.layer, call.outputs[0]
    before, given = call.shapes[0], call.layouts[0]
    if call.channel_axis() == 1:  # Flatten with `data_format` brings the channels to the end first
        before, given = ((*each[:1], *each[2:], *each[1:2]) for each in (before, given))
    layout = reshape_layout(channels, given, before, shape, f"{call.name} mixes channels")
    for entry, left_out in (("target_shape", 1), ("newshape", 0)):
        if hasattr(layer, entry):
            channels.shapes[id(layer)] = (layer, entry, left_out, layout, shape)
    return (layout,)


def permutation(channels: Channels, call: Call) -> tuple[Layout, ...]:
    """The axes in another order."""
    layer, layout = call.layer, call.layouts[0]
    if hasattr(layer, "dims"):
        order: Sequence[int] = (0, *layer.dims)
    else:
        order = layer.axes if layer.axes is not None else tuple(reversed(range(len(layout))))
    return (tuple(layout[axis] for axis in order),)


def repeat_vector(channels: Channels, call: Call) -> tuple[Layout, ...]:
    """The channels of a vector, along the last axis."""
    return ((None, None, call.layouts[0][1]),)
