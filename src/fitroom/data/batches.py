"""Batches of pictures, put together by threads a little ahead of when they are asked for."""

from collections import deque
from collections.abc import Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fitroom.data.reader import Reader
from fitroom.inputs.passes import seeded_generator

AHEAD_BYTES = 256 * 1024**2
"""Of batches that are made before they are asked for. One is, however large."""

_MOST_AHEAD = 4
_PARTS_A_WORKER = 4


@dataclass(frozen=True, kw_only=True)
class BatchNumber:
    """Which batch: its place in a pass over all pictures."""

    epoch: int
    """The number of the pass, from which the order and the random changes are drawn."""

    number: int
    shuffle: bool


@dataclass(kw_only=True)
class BatchMaker:
    """Batches of one split."""

    reader: Reader
    labels: Any
    batch_size: int
    seed: int
    workers: int
    _order: tuple[int, Any] = field(default=(-1, None), repr=False)

    @property
    def num_samples(self) -> int:
        """Pictures."""
        return len(self.labels)

    @property
    def num_batches(self) -> int:
        """In a pass; the last may be smaller."""
        return -(-self.num_samples // self.batch_size)

    @property
    def num_ahead(self) -> int:
        """How many batches are made ahead."""
        batch_bytes = self.batch_size * self.reader.image_size**2 * 3
        return max(1, min(_MOST_AHEAD, AHEAD_BYTES // batch_bytes))

    def pictures_of(self, batch: BatchNumber) -> Any:
        """The numbers of its pictures: from seed and epoch alone."""
        part = slice(batch.number * self.batch_size, (batch.number + 1) * self.batch_size)
        if not batch.shuffle:
            return np.arange(self.num_samples)[part]
        known, order = self._order
        if known != batch.epoch:
            order = seeded_generator(self.seed, batch.epoch).permutation(self.num_samples)
            self._order = (batch.epoch, order)
        return order[part]

    def made(self, batches: Iterable[BatchNumber]) -> Generator[tuple[Any, Any], None, None]:
        """(pictures, labels) of each batch. Close it, and the threads have ended."""
        waiting: deque[_Batch] = deque()
        threads = ThreadPoolExecutor(self.workers, thread_name_prefix="fitroom pictures")
        try:
            for batch in batches:
                waiting.append(self._begun(batch, threads))
                if len(waiting) > self.num_ahead:
                    yield waiting.popleft().done()
            while waiting:
                yield waiting.popleft().done()
        finally:
            threads.shutdown(wait=True, cancel_futures=True)

    def _begun(self, batch: BatchNumber, threads: ThreadPoolExecutor) -> "_Batch":
        numbers = self.pictures_of(batch)
        size = self.reader.image_size
        pictures: Any = np.empty((len(numbers), size, size, 3), np.uint8)  # a new one: frameworks may keep it
        step = -(-len(numbers) // (self.workers * _PARTS_A_WORKER))
        parts = [
            threads.submit(self._fill, pictures[start : start + step], numbers[start : start + step], batch.epoch)
            for start in range(0, len(numbers), step)
        ]
        return _Batch(pictures, self.labels[numbers], parts)

    def _fill(self, places: Any, numbers: Any, epoch: int) -> None:
        for place, number in zip(places, numbers.tolist(), strict=True):
            place[...] = self.reader.read(number, epoch)


@dataclass(frozen=True)
class _Batch:
    """A batch that is being made."""

    pictures: Any
    labels: Any
    parts: list[Future[None]]

    def done(self) -> tuple[Any, Any]:
        for part in self.parts:
            part.result()
        return self.pictures, self.labels
