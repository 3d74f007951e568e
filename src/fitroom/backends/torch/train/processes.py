"""The processes that train one model together on PyTorch, one for each device, as `torchrun` starts them.

Before gradients are reduced the processes vote, over a CPU channel with a time limit: whether each of them came through
its micro-batches, ran out of memory, or failed. So all of them go the same way, and none waits for one that gave up.
"""

import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from enum import IntEnum
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from fitroom.batch import Batch, leaves
from fitroom.distribution.current import StopVote
from fitroom.distribution.shares import share_out, share_ranges
from fitroom.environment import vote_seconds
from fitroom.errors import InputError, NoRoomError, PeerError
from fitroom.events import PEER_LOST


class Outcome(IntEnum):
    """How a process came through its part of a step, the best first."""

    DONE = 0
    OUT_OF_MEMORY = 1
    FAILED = 2


class Processes:
    """This process and those that train with it."""

    def __init__(self, weights: Sequence[float]) -> None:
        """`weights` are the shares of a batch, in proportion. The default process group exists already."""
        self.rank, self.count, self.weights = dist.get_rank(), dist.get_world_size(), tuple(weights)
        self.stop = StopVote()
        # The launcher's, which lives on when any of the processes is gone.
        address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        self._store = dist.TCPStore(address, port, is_master=False, wait_for_workers=False)
        self._channel = dist.new_group(backend="gloo", timeout=timedelta(seconds=vote_seconds()))

    def largest_share(self, batch_size: int) -> int:
        """The most samples of a batch that one process gets."""
        return max(share_out(batch_size, self.weights))

    def micro_batches(self, batch: Batch, micro_batch: int) -> list[list[Batch]]:
        """The micro-batches of every process, by its number; none for one that gets no sample."""
        ranges = share_ranges(batch.size, self.weights)
        return [batch.slice(*each).micro_batches(micro_batch) if each[0] < each[1] else [] for each in ranges]

    @contextmanager
    def agree(self, is_out_of_memory: Callable[[BaseException], bool]) -> Iterator[None]:
        """Leave the block when all processes have come to its end, by an error where any of them raised one.

        Out of memory anywhere is out of memory everywhere: NoRoomError in those that had room.
        """
        try:
            yield
        except Exception as error:
            if not isinstance(error, PeerError):
                self._vote(Outcome.OUT_OF_MEMORY if is_out_of_memory(error) else Outcome.FAILED)
            raise
        votes = self._vote(Outcome.DONE)
        if Outcome.FAILED in votes:
            raise PeerError(
                f"Process {votes.index(Outcome.FAILED)} of {self.count} failed in this step.", hint=PEER_LOST
            )
        if Outcome.OUT_OF_MEMORY in votes:
            number = votes.index(Outcome.OUT_OF_MEMORY)
            raise NoRoomError(
                f"Out of memory on device {number} of {self.count}: all of them repeat the batch.",
                hint="a smaller micro-batch",
            )

    def check_same(self, batch: Batch) -> None:
        """Raise InputError where the processes were given different batches: shares of them would overlap."""
        seen = self._gather([batch.size, _checksum(batch)])
        if len(set(map(tuple, seen))) > 1:
            raise InputError(
                "The processes of this training read different batches, so that their shares overlap or miss samples.",
                hint="have the data come in the same order in every process: seed what shuffles or draws them",
            )

    def sum(self, tensors: Sequence[Any]) -> None:
        """Replace the values of tensors by their sums over all processes."""
        by_type: dict[Any, list[Any]] = {}
        for tensor in tensors:
            by_type.setdefault((tensor.dtype, tensor.device), []).append(tensor)
        for group in by_type.values():
            flat = torch.cat([tensor.reshape(-1) for tensor in group])
            with self._explain_loss():
                dist.all_reduce(flat)
            start = 0
            for tensor in group:
                tensor.copy_(flat[start : start + tensor.numel()].reshape(tensor.shape))
                start += tensor.numel()

    def gather_rows(self, rows: Sequence[Sequence[float]]) -> list[list[list[float]]]:
        """The rows of numbers of every process."""
        found: list[Any] = [None] * self.count
        with self._explain_loss():
            dist.all_gather_object(found, [list(row) for row in rows], group=self._channel)
        return found

    def share(self, value: Any) -> Any:
        """The first process's value."""
        held = [value]
        with self._explain_loss():
            dist.broadcast_object_list(held, src=0, group=self._channel)
        return held[0]

    def any_of(self, value: bool) -> bool:
        """Whether it is true in any process."""
        return any(found for [found] in self._gather([int(value)]))

    def wait(self) -> None:
        """Wait for all processes."""
        with self._explain_loss():
            dist.barrier(group=self._channel)

    def copy_from_first(self, tensors: Sequence[Any]) -> None:
        """Give tensors the values that they have in the first process."""
        with self._explain_loss():
            for tensor in tensors:
                dist.broadcast(tensor, src=0)

    def claim(self, what: str) -> bool:
        """Whether this process is the first to claim something. The others may be gone: the launcher counts."""
        return bool(self._store.add(f"fitroom/{what}", 1) == 1)

    def _vote(self, outcome: Outcome) -> list[int]:
        votes = self._gather([int(outcome), int(self.stop.requested)])
        self.stop.agreed = any(requested for _, requested in votes)
        return [vote for vote, _ in votes]

    def _gather(self, numbers: Sequence[int]) -> list[list[int]]:
        own = torch.tensor(list(numbers), dtype=torch.int64)
        found = [torch.empty_like(own) for _ in range(self.count)]
        with self._explain_loss():
            dist.all_gather(found, own, group=self._channel)
        return [each.tolist() for each in found]

    @contextmanager
    def _explain_loss(self) -> Iterator[None]:
        try:
            yield
        except (RuntimeError, ValueError) as error:  # what PyTorch raises when a connection breaks or time is up
            said = str(error).strip().partition("\n")[0][:200]
            raise PeerError(
                f"Another process of this training is gone, or gave no answer for {vote_seconds():g} seconds. PyTorch "
                f"said: {said}",
                hint=PEER_LOST,
            ) from error


def _checksum(batch: Batch) -> int:
    """A number that tells batches apart: of the first and the last sample, which are on the host."""
    found = 0
    for array in leaves((batch.x, batch.y)):
        for sample in (array[:1], array[-1:]):
            if isinstance(sample, torch.Tensor):
                sample = sample.detach().cpu().numpy()
            found = zlib.crc32(np.ascontiguousarray(np.asarray(sample)).tobytes(), found)
    return found


_current: list[Processes] = []


def current_processes() -> Processes | None:
    """The processes that train together here, or None where this one trains alone."""
    return _current[-1] if _current else None


@contextmanager
def use_processes(processes: Processes) -> Iterator[None]:
    """Have steps of this block shared by these processes."""
    _current.append(processes)
    try:
        yield
    finally:
        _current.remove(processes)
