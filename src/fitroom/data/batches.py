"""Batches of images, decoded by threads and prefetched."""

from collections import deque
from collections.abc import Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fitroom.data.reader import Reader
from fitroom.inputs.passes import seeded_generator

PREFETCH_BYTES = 256 * 1024**2
"""The most memory of prefetched batches. One batch is prefetched however large it is."""

_MAX_PREFETCHED = 4
_TASKS_PER_WORKER = 4


@dataclass(frozen=True, kw_only=True)
class BatchNumber:
    """Identifies a batch by its place in a pass over all images."""

    epoch: int
    """The number of the pass, from which order and augmentation are drawn."""

    number: int
    shuffle: bool


@dataclass(kw_only=True)
class BatchMaker:
    """Makes the batches of one split."""

    reader: Reader
    labels: Any
    batch_size: int
    seed: int
    workers: int
    _order: tuple[int, Any] = field(default=(-1, None), repr=False)

    @property
    def num_samples(self) -> int:
        """How many images the split has."""
        return len(self.labels)

    @property
    def num_batches(self) -> int:
        """How many batches a pass has; the last may be smaller."""
        return -(-self.num_samples // self.batch_size)

    @property
    def num_prefetched(self) -> int:
        """How many batches are prefetched."""
        batch_bytes = self.batch_size * self.reader.image_size**2 * 3
        return max(1, min(_MAX_PREFETCHED, PREFETCH_BYTES // batch_bytes))

    def image_numbers(self, batch: BatchNumber) -> Any:
        """The numbers of a batch's images, which depend on seed and epoch alone."""
        places = slice(batch.number * self.batch_size, (batch.number + 1) * self.batch_size)
        if not batch.shuffle:
            return np.arange(self.num_samples)[places]
        known, order = self._order
        if known != batch.epoch:
            order = seeded_generator(self.seed, batch.epoch).permutation(self.num_samples)
            self._order = (batch.epoch, order)
        return order[places]

    def make_batches(self, batches: Iterable[BatchNumber]) -> Generator[tuple[Any, Any], None, None]:
        """Yield (images, labels) of each batch, the next ones prefetched. Closing the generator ends its threads."""
        waiting: deque[_Batch] = deque()
        threads = ThreadPoolExecutor(self.workers, thread_name_prefix="fitroom images")
        try:
            for batch in batches:
                waiting.append(self._start(batch, threads))
                if len(waiting) > self.num_prefetched:
                    yield waiting.popleft().wait()
            while waiting:
                yield waiting.popleft().wait()
        finally:
            threads.shutdown(wait=True, cancel_futures=True)

    def _start(self, batch: BatchNumber, threads: ThreadPoolExecutor) -> "_Batch":
        numbers = self.image_numbers(batch)
        size = self.reader.image_size
        images: Any = np.empty(
            (len(numbers), size, size, 3), np.uint8
        )  # new each time: a framework may keep a reference
        step = -(-len(numbers) // (self.workers * _TASKS_PER_WORKER))
        tasks = [
            threads.submit(self._fill, images[start : start + step], numbers[start : start + step], batch.epoch)
            for start in range(0, len(numbers), step)
        ]
        return _Batch(images, self.labels[numbers], tasks)

    def _fill(self, places: Any, numbers: Any, epoch: int) -> None:
        for place, number in zip(places, numbers.tolist(), strict=True):
            place[...] = self.reader.read(number, epoch)


@dataclass(frozen=True)
class _Batch:
    """A batch whose images are being decoded."""

    images: Any
    labels: Any
    tasks: list[Future[None]]

    def wait(self) -> tuple[Any, Any]:
        for task in self.tasks:
            task.result()
        return self.images, self.labels
