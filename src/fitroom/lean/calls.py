"""One call of a layer or operation, and what rules of several kinds of layers do with its channels."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fitroom.lean.channels import Channels, Layout

Shape = tuple[int | None, ...]


@dataclass(frozen=True, kw_only=True)
class Call:
    """One call of a layer or operation, with the layouts of its input tensors."""

    layer: Any
    arguments: Any
    """Positional and keyword arguments, as Keras keeps them in a node."""

    layouts: tuple[Layout, ...]
    shapes: tuple[Shape, ...]
    outputs: tuple[Shape, ...]

    @property
    def name(self) -> str:
        """The name of the layer."""
        return str(self.layer.name)

    def channel_axis(self) -> int:
        """The axis of channels, by the layer's `data_format`."""
        first = getattr(self.layer, "data_format", None) == "channels_first"
        return 1 if first else len(self.shapes[0]) - 1

    def tensors(self) -> list[Any]:
        """The input tensors, in the order of the layouts."""
        import keras

        given = keras.tree.flatten((self.arguments.args, self.arguments.kwargs))
        return [each for each in given if isinstance(each, keras.KerasTensor)]

    def has_constants(self) -> bool:
        """Whether an array is among the arguments, which would have to be cut with the channels."""
        import keras

        given = keras.tree.flatten((self.arguments.args, self.arguments.kwargs))
        return any(
            math.prod(getattr(each, "shape", ())) > 1 for each in given if not isinstance(each, keras.KerasTensor)
        )


Rule = Callable[[Channels, Call], tuple[Layout, ...]]
"""Returns the layouts of what a call returns."""


def whole(shape: Shape) -> Layout:
    """The layout of a tensor whose axes are all kept whole."""
    return (None,) * len(shape)


def keep(channels: Channels, call: Call) -> tuple[Layout, ...]:
    """Keep what goes in and what comes out."""
    channels.pin_all(call.layouts, f"{call.name} ({type(call.layer).__name__}) takes all channels")
    return tuple(whole(shape) for shape in call.outputs)


def pin_others(channels: Channels, call: Call, own: int, *, does: str) -> None:
    """Keep channels that lie along other axes than the layer's own of channels, as after a Permute."""
    for layout in call.layouts:
        for axis, channels_here in enumerate(layout):
            if axis != own % len(layout):
                channels.pin(channels_here, f"{call.name} {does} an axis of channels")
