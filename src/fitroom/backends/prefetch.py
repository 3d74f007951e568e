"""The batches that are prefetched, in the order in which training takes them."""

from collections import deque

from fitroom.batch import Batch


class PrefetchQueue:
    """Batches on the host that training will take next: one thread adds them, the thread that trains asks for them."""

    def __init__(self) -> None:
        self._batches: deque[Batch] = deque()

    def add(self, batch: Batch) -> None:
        """Put a batch behind those that were added before."""
        self._batches.append(batch)

    def next_after(self, batch: Batch) -> Batch | None:
        """The batch that follows `batch`, if it was added already; `batch` and those before it are dropped."""
        for number, each in enumerate(list(self._batches), start=1):
            if each is batch:
                for _ in range(number):
                    self._batches.popleft()
                break
        return self._batches[0] if self._batches else None

    def clear(self) -> None:
        """Drop all batches: training takes none of them."""
        self._batches.clear()
