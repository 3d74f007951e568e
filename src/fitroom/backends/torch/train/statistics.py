"""Statistics that a forward pass changes, such as BatchNormalization's, in a step of several micro-batches."""

from typing import Any

import torch

from fitroom.backends.torch.train.snapshot import Snapshot


class AveragedStatistics:
    """Lets every micro-batch start from the values before the batch, and averages the outcomes by their samples."""

    def __init__(self, before: Snapshot) -> None:
        self._before = before
        pairs = list(zip(before.tensors, before.copies, strict=True))
        averaged = [(tensor, copy) for tensor, copy in pairs if tensor.is_floating_point()]
        self._tensors = [tensor for tensor, _ in averaged]
        self._copies = [copy for _, copy in averaged]
        self.changes: list[Any] = [torch.zeros_like(tensor) for tensor in self._tensors]
        """The changes so far, each micro-batch's by its share. What none of them changes stays exactly as it is."""

    def begin_micro_batch(self) -> None:
        """Restore the values before the batch."""
        self._before.restore()

    def end_micro_batch(self, share: float) -> None:
        """Add up what a micro-batch with this share of the samples changed."""
        if not self._tensors:
            return
        changes = torch._foreach_sub(self._tensors, self._copies)
        torch._foreach_mul_(changes, share)
        torch._foreach_add_(self.changes, changes)

    def finish(self) -> None:
        """Apply the changes of all micro-batches. Integers (counters) stay as the last micro-batch left them."""
        if self._tensors:
            torch._foreach_copy_(self._tensors, torch._foreach_add(self._copies, self.changes))
