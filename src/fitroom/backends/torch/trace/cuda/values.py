"""Values that a step asks of its tensors. Fake ones have none, so it is told what holds in steady training."""

import contextlib
from typing import Any

import numpy as np
import torch
from torch._subclasses.fake_tensor import DataDependentOutputException

from fitroom.backends.torch.trace.fake_mode import DEVICE


def value_of(recorder: Any, operation: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The value where it does not depend on others, as a counter's; else True for a condition (gradients are finite,
    it is time to update) and 1 for a number."""
    with contextlib.suppress(DataDependentOutputException):
        return operation(*args, **kwargs)
    dtype = args[0].dtype
    if dtype == torch.bool:
        return True
    return 1.0 if dtype.is_floating_point else 1


def each_once(recorder: Any, operation: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The places of what is repeated, nobody knows how often: once, as in the sums over segments of Keras's metrics."""
    output_size = kwargs.get("output_size") or args[0].numel()
    return torch.empty(output_size, dtype=args[0].dtype, device=DEVICE)  # wherever numbers of Python's seem to be


def array_of(tensor: Any, *_: Any, **__: Any) -> Any:
    """The same as a NumPy array: ones, where its values are not known."""
    if (known := getattr(tensor, "constant", None)) is not None:
        return np.array(known.tolist(), str(known.dtype).removeprefix("torch."))
    dtype = torch.float32 if tensor.dtype == torch.bfloat16 else tensor.dtype
    return np.ones(tuple(tensor.shape), str(dtype).removeprefix("torch."))


def list_of(tensor: Any) -> Any:
    """The same as a list, or as a number."""
    return array_of(tensor).tolist()


ARRAYS = {torch.Tensor.numpy: array_of, torch.Tensor.__array__: array_of, torch.Tensor.tolist: list_of}
VALUES = {
    torch.ops.aten._local_scalar_dense.default: value_of,
    torch.ops.aten.is_nonzero.default: value_of,
    torch.ops.aten.repeat_interleave.Tensor: each_once,
}
