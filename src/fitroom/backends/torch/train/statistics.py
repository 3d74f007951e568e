"""Statistics that micro-batches move, such as BatchNormalization's."""

from typing import Any

import torch

from fitroom.backends.torch.train.snapshot import Snapshot


class Moved:
    """Lets every part of a batch start from the same values, and averages the outcomes by their samples."""

    def __init__(self, before: Snapshot) -> None:
        self._before = before
        pairs = list(zip(before.tensors, before.copies, strict=True))
        averaged = [(tensor, copy) for tensor, copy in pairs if tensor.is_floating_point()]
        self._tensors = [tensor for tensor, _ in averaged]
        self._copies = [copy for _, copy in averaged]
        self._moves: list[Any] = []
        """How far they have moved so far, each part by its share. What no part moves stays exactly as it is."""

    def begin_part(self) -> None:
        """Go back to the values before the batch."""
        self._before.put_back()

    def end_part(self, share: float) -> None:
        """Note how far a part that has this share of the samples moved them."""
        if not self._tensors:
            return
        moves = torch._foreach_sub(self._tensors, self._copies)
        torch._foreach_mul_(moves, share)
        if self._moves:
            torch._foreach_add_(self._moves, moves)
        else:
            self._moves = moves

    def finish(self) -> None:
        """Move them by all parts together. Integers (counters) are left at what the last part made of them."""
        if self._tensors:
            torch._foreach_copy_(self._tensors, torch._foreach_add(self._copies, self._moves))
