"""Views of Keras's tensors, channels last, as PyTorch's functions take them, channels second; nothing is copied.

PyTorch tells the layout of a tensor by its strides. A tensor of Keras's shape (batch, height, width, channels) that is
viewed as (batch, channels, height, width) is a `channels_last` tensor of PyTorch, and so is what a convolution or a
pooling makes of it: viewed back it is contiguous again.
"""

from collections.abc import Sequence
from typing import Any


class ChannelsSecond:
    """A tensor of images or volumes as PyTorch's functions take it, between two layers that both do."""

    __slots__ = ("tensor",)

    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor

    def as_tensor(self) -> Any:
        """The tensor as Keras has it."""
        return channels_last(self.tensor)


def channels_second(tensor: Any) -> Any:
    """View a tensor with channels last as one with channels second."""
    last = tensor.ndim - 1
    return tensor.permute(0, last, *range(1, last))


def channels_last(tensor: Any) -> Any:
    """View a tensor with channels second as one with channels last."""
    return tensor.permute(0, *range(2, tensor.ndim), 1)


def same_padding(lengths: Sequence[int], sizes: Sequence[int], strides: Sequence[int]) -> list[tuple[int, int]]:
    """What `padding="same"` adds before and after each dimension, for windows of these sizes.

    >>> same_padding([147, 74], [3, 3], [2, 2])
    [(1, 1), (0, 1)]
    """
    padding = []
    for length, size, stride in zip(lengths, sizes, strides, strict=True):
        total = max(0, (-(-length // stride) - 1) * stride + size - length)
        padding.append((total // 2, total - total // 2))
    return padding


def flat_padding(padding: Sequence[tuple[int, int]]) -> list[int]:
    """The same for `torch.nn.functional.pad`, which begins with the last dimension."""
    return [number for pair in reversed(padding) for number in pair]
