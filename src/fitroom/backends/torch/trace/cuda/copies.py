"""Operations that bring what they are given into one layout first."""

from typing import Any

import torch

from fitroom.backends.torch.trace.cuda.layouts import copy_bytes, layout_of

_aten = torch.ops.aten


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
    recorder.let_go(scratch)
    return result


def _with_copies(recorder: Any, operation: Any, args: Any, kwargs: Any, copied: list[tuple[Any, Any]]) -> Any:
    numbers = [recorder.hold(copy_bytes(tensor, layout)) for tensor, layout in copied]
    result = operation(*args, **kwargs)
    recorder.born(result)
    for number in numbers:
        recorder.let_go(number)
    return result


COPIES = {
    _aten.max_pool2d_with_indices_backward.default: _pool_backward,
    _aten.avg_pool2d_backward.default: _pool_backward,
    _aten._softmax_backward_data.default: _softmax_backward,
    _aten._log_softmax_backward_data.default: _softmax_backward,
    _aten.embedding_dense_backward.default: _embedding_backward,
}
