"""Convolutions as cuDNN runs them: the layout of what they read and write, and their scratch memory."""

from dataclasses import dataclass
from math import prod
from typing import Any, Literal

import torch

from fitroom.backends.torch.trace.cuda.layouts import copy_bytes, preferred_layout

Way = Literal["forward", "backward_input", "backward_kernel"]
_MOST_PARTIAL_BYTES = 16 * 1024**2


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
    def channel_group(self) -> int:
        """The number of channels that kernels for matrix units take together."""
        return 4 if self.itemsize == 4 else 8

    @property
    def padded_input_bytes(self) -> int:
        """The input copied; in halves with channels added until they come out even."""
        channels = self.in_channels
        if self.itemsize == 2:
            channels = -(-channels // self.channel_group) * self.channel_group
        return self.batch * channels * prod(self.in_size) * self.itemsize

    @property
    def output_bytes(self) -> int:
        """The size of the output."""
        return self.batch * self.out_channels * prod(self.out_size) * self.itemsize

    @property
    def kernel_bytes(self) -> int:
        """The size of the kernel."""
        return self.out_channels * self.in_channels // self.groups * prod(self.kernel) * self.itemsize


def convolution(recorder: Any, operation: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`aten.convolution`: the result is laid out as the input or the kernel is."""
    x, weight, _, stride, padding, dilation, transposed, output_padding, groups = args
    layout = preferred_layout(x, weight)
    copies = [recorder.hold(copy_bytes(tensor, layout)) for tensor in (x, weight)]
    y = torch.empty(
        _output_shape(x, weight, stride, padding, dilation, transposed, output_padding, groups),
        dtype=x.dtype,
        device=x.device,
        memory_format=layout,
    )
    recorder.follow(y)
    way: Way = "backward_input" if transposed else "forward"
    scratch = recorder.hold(
        workspace_bytes(Convolution.of(y if transposed else x, weight, x if transposed else y, groups), way)
    )
    for number in (*copies, scratch):
        recorder.release(number)
    return y


def convolution_backward(recorder: Any, operation: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`aten.convolution_backward`: first the gradient of the input, then that of the kernel."""
    dy, x, weight, bias_sizes, *rest, (wants_x, wants_weight, wants_bias) = args
    transposed = rest[3]
    layout = preferred_layout(x, weight)
    copies = [recorder.hold(copy_bytes(tensor, layout)) for tensor in ((x,) if wants_weight else ()) + (dy, weight)]
    shape = Convolution.of(dy if transposed else x, weight, x if transposed else dy, rest[-1])
    dx = dweight = None
    if wants_x:
        dx = torch.empty(x.shape, dtype=x.dtype, device=x.device, memory_format=layout)
        recorder.follow(dx)
        recorder.release(recorder.hold(workspace_bytes(shape, "forward" if transposed else "backward_input")))
    if wants_weight:
        recorder.begin("convolution_backward (kernel)")
        dweight = torch.empty(weight.shape, dtype=weight.dtype, device=x.device, memory_format=layout)
        recorder.follow(dweight)
        recorder.release(recorder.hold(workspace_bytes(shape, "backward_kernel")))
    for number in copies:
        recorder.release(number)
    dbias = torch.empty(bias_sizes, dtype=dy.dtype, device=x.device) if wants_bias else None
    return dx, dweight, dbias


CONVOLUTIONS = {
    torch.ops.aten.convolution.default: convolution,
    torch.ops.aten.convolution_backward.default: convolution_backward,
}


def _output_shape(
    x: Any, weight: Any, stride: Any, padding: Any, dilation: Any, transposed: bool, output_padding: Any, groups: int
) -> tuple[int, ...]:
    ndim = x.ndim - 2
    stride, padding, dilation, output_padding = (
        list(each) * ndim if len(each) == 1 else list(each) for each in (stride, padding, dilation, output_padding)
    )
    spatial = []
    for place in range(ndim):
        length = x.shape[2 + place]
        reach = dilation[place] * (weight.shape[2 + place] - 1) + 1
        if transposed:
            length = (length - 1) * stride[place] - 2 * padding[place] + reach + output_padding[place]
        else:
            length = (length + 2 * padding[place] - reach) // stride[place] + 1
        spatial.append(length)
    channels = weight.shape[1] * groups if transposed else weight.shape[0]
    return (x.shape[0], channels, *spatial)


def workspace_bytes(convolution: Convolution, way: Way) -> int:
    """The scratch memory of one way of a convolution: the rules that fit an H200, mostly within some MiB.

    Kernels for matrix units take channels by fours (float32) or eights (halves): images of three channels are padded
    or laid out anew first. Gradients of kernels are summed in partial sums.
    """
    if convolution.groups > 1:
        return _partial_sums_bytes(convolution) if way == "backward_kernel" else 0
    if convolution.in_channels % convolution.channel_group:
        if way == "backward_input":
            return convolution.padded_input_bytes
        lies_anew = way == "backward_kernel" and convolution.itemsize == 4 and max(convolution.kernel) > 3
        return convolution.padded_input_bytes + (convolution.output_bytes if lies_anew else 0)
    return min(_MOST_PARTIAL_BYTES, 16 * convolution.kernel_bytes) if way == "backward_kernel" else 0


def _partial_sums_bytes(convolution: Convolution) -> int:
    """For the gradient of a kernel whose channels stay apart: in halves, eight float32 sums for each image."""
    if convolution.itemsize == 2:
        return 16 * convolution.batch * convolution.kernel_bytes
    return _MOST_PARTIAL_BYTES // 2
