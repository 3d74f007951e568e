"""Recognising that PyTorch is out of memory."""

import torch

from fitroom.backends.out_of_memory import recognise


def is_out_of_memory(error: BaseException) -> bool:
    """Whether the device ran out of memory.

    The class is `torch.OutOfMemoryError` on an accelerator. On the CPU, and out of cuDNN or cuBLAS, PyTorch raises
    a plain `RuntimeError` of which only the text tells.
    """
    return recognise(error, by_class=lambda link: isinstance(link, torch.OutOfMemoryError))
