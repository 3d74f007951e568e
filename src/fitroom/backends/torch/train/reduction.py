"""Reducing gradients by DistributedDataParallel after all micro-batches of a step, in one go.

DistributedDataParallel reduces in the backward pass. A process that runs out of memory there would leave the others
waiting in a reduction. So the micro-batches run without it, all processes agree that they came through, and then one
backward pass of zeros through the wrapped weights has DistributedDataParallel reduce what was added up.
"""

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


class GradientReduction:
    """Sums the gradients of some weights over all processes. Making one gives them the first process's values."""

    def __init__(self, weights: Sequence[Any]) -> None:
        self._weights = list(weights)
        self._places = {id(weight) for weight in weights}
        self._distributed = DistributedDataParallel(_Weights(self._weights))
        self._distributed.register_comm_hook(None, _sum_bucket)

    def is_for(self, weights: Sequence[Any]) -> bool:
        """Whether it reduces just these weights."""
        return {id(weight) for weight in weights} == self._places

    def run(self) -> None:
        """Replace each gradient by its sum over all processes; one that is None counts as zero."""
        self._distributed().backward()


class _Weights(torch.nn.Module):  # type: ignore[misc]
    """The weights, in a module whose output depends on none of their values."""

    def __init__(self, weights: Sequence[Any]) -> None:
        super().__init__()
        self.weights = torch.nn.ParameterList(weights)

    def forward(self) -> Any:
        return torch.stack([weight.reshape(-1)[:1].sum().float() * 0 for weight in self.weights]).sum()


def _sum_bucket(state: None, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """The sum over all processes, where DistributedDataParallel would take the mean."""
    future = dist.all_reduce(bucket.buffer(), async_op=True).get_future()
    reduced: torch.futures.Future[torch.Tensor] = future.then(lambda found: found.value()[0])
    return reduced
