"""Layouts of images in memory, channels before or after the pixels, and operations that copy into one layout first."""

from typing import Any

import torch

_aten = torch.ops.aten
_CHANNELS_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}


def preferred_layout(x: Any, weight: Any) -> Any:
    """The layout in which cuDNN runs a convolution: channels last where the input or the kernel is so."""
    layout = _CHANNELS_LAST.get(x.ndim)
    if layout is not None and (is_channels_last(x) or is_channels_last(weight)) and x.dtype != torch.float64:
        return layout
    return torch.contiguous_format


def layout_of(tensor: Any) -> Any:
    """The layout that PyTorch sees in a tensor."""
    return _CHANNELS_LAST[tensor.ndim] if is_channels_last(tensor) else torch.contiguous_format


def copy_bytes(tensor: Any, layout: Any) -> int:
    """The size of the copy that brings a tensor into a layout; 0 where it is in it."""
    return 0 if tensor.is_contiguous(memory_format=layout) else int(tensor.numel() * tensor.element_size())


def is_channels_last(tensor: Any) -> bool:
    """Whether PyTorch takes the tensor's strides for channels last (`suggest_memory_format`)."""
    shape, strides = tensor.shape, tensor.stride()
    if tensor.ndim not in _CHANNELS_LAST or strides[1] == 0:
        return False
    least = 0
    for dim in (1, *range(tensor.ndim - 1, 1, -1), 0):
        if shape[dim] == 0 or strides[dim] < least:
            return False
        if dim == 0 and least == strides[1]:  # one channel of one pixel: both layouts are the same
            return False
        least = strides[dim] * max(shape[dim], 1)
    return True


def _pool_backward(recorder: Any, operation: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The gradient of a pooling: the gradient that comes in is laid out as the input was."""
    gradient, x = args[:2]
    return _with_copies(recorder, operation, args, kwargs, [(gradient, layout_of(x))])


def _softmax_backward(recorder: Any, operation: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return _with_copies(recorder, operation, args, kwargs, [(each, torch.contiguous_format) for each in args[:2]])


def _embedding_backward(recorder: Any, operation: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The gradient of an embedding: sums over parts of the sorted words come first, in float32."""
    scratch = recorder.hold(4 * args[0].numel())
    result = _with_copies(recorder, operation, args, kwargs, [(args[0], torch.contiguous_format)])
    recorder.release(scratch)
    return result


def _with_copies(recorder: Any, operation: Any, args: Any, kwargs: Any, copied: list[tuple[Any, Any]]) -> Any:
    numbers = [recorder.hold(copy_bytes(tensor, layout)) for tensor, layout in copied]
    result = operation(*args, **kwargs)
    recorder.follow(result)
    for number in numbers:
        recorder.release(number)
    return result


COPIES = {
    _aten.max_pool2d_with_indices_backward.default: _pool_backward,
    _aten.avg_pool2d_backward.default: _pool_backward,
    _aten._softmax_backward_data.default: _softmax_backward,
    _aten._log_softmax_backward_data.default: _softmax_backward,
    _aten.embedding_dense_backward.default: _embedding_backward,
}
