"""Convolutions as cuDNN runs them: the layout of what they read and write, and their scratch memory."""

from typing import Any

import torch

from fitroom.backends.torch.trace.cuda.layouts import copy_bytes, preferred_layout
from fitroom.backends.torch.trace.cuda.workspaces import Convolution, Way, workspace_bytes


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
    recorder.born(y)
    way: Way = "backward_input" if transposed else "forward"
    scratch = recorder.hold(
        workspace_bytes(Convolution.of(y if transposed else x, weight, x if transposed else y, groups), way)
    )
    for number in (*copies, scratch):
        recorder.let_go(number)
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
        recorder.born(dx)
        recorder.let_go(recorder.hold(workspace_bytes(shape, "forward" if transposed else "backward_input")))
    if wants_weight:
        recorder.begin("convolution_backward (kernel)")
        dweight = torch.empty(weight.shape, dtype=weight.dtype, device=x.device, memory_format=layout)
        recorder.born(dweight)
        recorder.let_go(recorder.hold(workspace_bytes(shape, "backward_kernel")))
    for number in copies:
        recorder.let_go(number)
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
