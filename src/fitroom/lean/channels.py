"""Which channels of a model must be removed together: a union-find over all channels that its layers make.

Each channel that a layer makes is a number. Where two tensors are added, channel by channel, the numbers of each pair
are joined: either all channels of such a set are removed, or none. A layout says, for each axis of a tensor, which
channels lie along it; None where the axis is kept whole.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fitroom.errors import ModelError

Axis = Any
"""The channels along one axis, an array of numbers; None for an axis that is kept whole."""

Layout = tuple[Axis, ...]


@dataclass(frozen=True, kw_only=True)
class Place:
    """Channels along one axis of one weight of a layer."""

    layer: Any
    weight: int
    """The place of the weight in `layer.weights`."""

    axis: int
    channels: Axis
    scores: bool = True
    """Whether the values here say how important a channel is: kernels and scales do, offsets and statistics do not."""


@dataclass(frozen=True, kw_only=True)
class Blocks:
    """Channels that a layer takes in `count` blocks of equal size, and of which each must lose as many."""

    channels: Any
    count: int
    reason: str


@dataclass
class Channels:
    """All channels of a model, the sets they form, and where they lie in its weights."""

    places: dict[tuple[int, int, int], Place] = field(default_factory=dict)
    blocks: list[Blocks] = field(default_factory=list)
    made: dict[Hashable, Any] = field(default_factory=dict)
    """The channels that each layer makes, by its id."""

    makers: dict[Hashable, str] = field(default_factory=dict)
    """The name of each layer that makes channels, by its id."""

    sizes: dict[tuple[int, str], tuple[Any, Any]] = field(default_factory=dict)
    """Layers with the entries of their configs that are numbers of channels: {(id, "filters"): (layer, channels)}."""

    shapes: dict[int, tuple[Any, str, int, Layout, tuple[int | None, ...]]] = field(default_factory=dict)
    """Layers whose config holds a shape: the layer, its entry, how many axes are left out, layout and old shape."""

    pins: dict[int, str] = field(default_factory=dict)
    """Channels that must stay, with the reason."""

    _parents: list[int] = field(default_factory=list)

    def make(self, layer: Any, count: int) -> Any:
        """The channels that a layer makes; the same ones at each of its calls."""
        self.makers[id(layer)] = layer.name
        return self.make_fixed(id(layer), count)

    def make_fixed(self, key: Hashable, count: int) -> Any:
        """Channels that no layer makes, as of a part of a concatenation; the same ones for the same key."""
        if key not in self.made:
            start = len(self._parents)
            self._parents.extend(range(start, start + count))
            self.made[key] = np.arange(start, start + count)
        return self.made[key]

    def find(self, channel: int) -> int:
        """The channel that stands for the set of this one."""
        root = channel
        while self._parents[root] != root:
            root = self._parents[root]
        while self._parents[channel] != root:
            self._parents[channel], channel = root, self._parents[channel]
        return root

    def roots(self, channels: Any) -> Any:
        """The channels that stand for the sets of these."""
        return np.array([self.find(int(each)) for each in channels], dtype=np.int64)

    def join(self, first: Axis, second: Axis, reason: str) -> Axis:
        """Join channels of two axes pair by pair. Where one axis is kept whole, the other must be, too."""
        if first is None or second is None or len(first) != len(second):
            self.pin(first, reason)
            self.pin(second, reason)
            return None
        if first is not second:
            for one, other in zip(first.tolist(), second.tolist(), strict=True):
                self._parents[self.find(other)] = self.find(one)
        return first

    def pin(self, channels: Axis, reason: str) -> None:
        """Keep these channels, and all that are joined to them."""
        if channels is not None:
            for each in channels.tolist():
                self.pins.setdefault(each, reason)

    def pin_all(self, layouts: Sequence[Layout], reason: str) -> None:
        """Keep all channels of these tensors."""
        for layout in layouts:
            for axis in layout:
                self.pin(axis, reason)

    def put(self, layer: Any, weight: Any, axis: int, channels: Axis, *, scores: bool = True) -> None:
        """Note that these channels lie along an axis of a layer's weight; None for a weight that the layer lacks."""
        if weight is None:
            return
        number = next((number for number, each in enumerate(layer.weights) if each is weight), None)
        if number is None:
            raise ModelError(
                f"The kernel of {layer.name} is no weight of its own: it has an adapter or is quantized.",
                hint="fitroom.lean.merge(model) merges adapters; prune before quantizing",
            )
        key = (id(layer), number, axis % len(weight.shape))
        if key in self.places:  # a layer that is called more than once
            self.join(self.places[key].channels, channels, f"{layer.name} is called with other channels as well")
        else:
            self.places[key] = Place(layer=layer, weight=number, axis=key[2], channels=channels, scores=scores)

    def size(self, layer: Any, entry: str, channels: Axis) -> None:
        """Note that an entry of a layer's config is the number of these channels."""
        if channels is not None:
            self.sizes[id(layer), entry] = (layer, channels)
