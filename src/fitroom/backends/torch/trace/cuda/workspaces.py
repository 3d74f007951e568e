"""Scratch memory of cuDNN's convolutions, as its heuristics choose kernels."""

from dataclasses import dataclass
from math import prod
from typing import Any, Literal

Way = Literal["forward", "backward_input", "backward_kernel"]
_MOST_PARTS_BYTES = 16 * 1024**2


@dataclass(frozen=True, kw_only=True)
class Convolution:
    """What cuDNN's choice of a kernel depends on."""

    batch: int
    in_channels: int
    out_channels: int
    in_size: tuple[int, ...]
    out_size: tuple[int, ...]
    kernel: tuple[int, ...]
    groups: int
    itemsize: int

    @classmethod
    def of(cls, x: Any, weight: Any, y: Any, groups: int) -> "Convolution":
        """The convolution from `x` to `y`."""
        return cls(
            batch=x.shape[0],
            in_channels=x.shape[1],
            out_channels=y.shape[1],
            in_size=tuple(x.shape[2:]),
            out_size=tuple(y.shape[2:]),
            kernel=tuple(weight.shape[2:]),
            groups=groups,
            itemsize=x.element_size(),
        )

    @property
    def channels_at_once(self) -> int:
        """How many channels the kernels for matrix units take at once."""
        return 4 if self.itemsize == 4 else 8

    @property
    def padded_input_bytes(self) -> int:
        """The input copied; in halves with channels added until they come out even."""
        channels = self.in_channels
        if self.itemsize == 2:
            channels = -(-channels // self.channels_at_once) * self.channels_at_once
        return self.batch * channels * prod(self.in_size) * self.itemsize

    @property
    def output_bytes(self) -> int:
        """The size of the output."""
        return self.batch * self.out_channels * prod(self.out_size) * self.itemsize

    @property
    def kernel_bytes(self) -> int:
        """The size of the kernel."""
        return self.out_channels * self.in_channels // self.groups * prod(self.kernel) * self.itemsize


def workspace_bytes(convolution: Convolution, way: Way) -> int:
    """The scratch memory of one way of a convolution: the rules that fit an H200, mostly within some MiB.

    Kernels for matrix units take channels by fours (float32) or eights (halves): pictures of three channels are padded
    or laid out anew first. Gradients of kernels are summed in parts.
    """
    if convolution.groups > 1:
        return _parts_bytes(convolution) if way == "backward_kernel" else 0
    if convolution.in_channels % convolution.channels_at_once:
        if way == "backward_input":
            return convolution.padded_input_bytes
        lies_anew = way == "backward_kernel" and convolution.itemsize == 4 and max(convolution.kernel) > 3
        return convolution.padded_input_bytes + (convolution.output_bytes if lies_anew else 0)
    return min(_MOST_PARTS_BYTES, 16 * convolution.kernel_bytes) if way == "backward_kernel" else 0


def _parts_bytes(convolution: Convolution) -> int:
    """For the gradient of a kernel whose channels stay apart: in halves, eight float32 sums for each picture."""
    if convolution.itemsize == 2:
        return 16 * convolution.batch * convolution.kernel_bytes
    return _MOST_PARTS_BYTES // 2
