"""Tensors as they were at one moment."""

from collections.abc import Sequence
from typing import Any

import torch


class Snapshot:
    """Copies of some tensors, which can be put back in place."""

    def __init__(self, tensors: Sequence[Any]) -> None:
        self.tensors = [tensor.detach() for tensor in tensors]
        self.copies = [torch.empty_like(tensor) for tensor in self.tensors]
        if self.tensors:  # many small copies in a few calls
            torch._foreach_copy_(self.copies, self.tensors)

    def put_back(self) -> None:
        """Give every tensor its old value. This takes no memory."""
        if self.tensors:
            torch._foreach_copy_(self.tensors, self.copies)
