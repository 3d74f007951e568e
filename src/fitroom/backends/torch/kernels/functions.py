"""Functions that PyTorch takes apart in another way on CUDA than on the CPU."""

from typing import Any

import torch
from torch.overrides import TorchFunctionMode


def _dropout(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
    if not training or not 0 < p < 1 or inplace:
        return torch.dropout(input, p, training)
    return torch.native_dropout(input, p, True)[0]


_ON_CUDA = {torch.nn.functional.dropout: _dropout}


class CudaFunctions(TorchFunctionMode):  # type: ignore[misc]
    """Calls what CUDA would call, where the CPU would be given something else."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _ON_CUDA.get(func, func)(*args, **kwargs or {})
