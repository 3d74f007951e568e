"""Which batch a stepper is given next, so that it can start the transfer to the card before that batch's turn.

The thread that makes batches ahead on the host is in `fitroom.inputs.prefetch`; how many it makes is `batches_ahead` in
`contract.py`.
"""

from collections import deque

from fitroom.batch import Batch


class PrefetchQueue:
    """The batches on the host that training takes next: one thread adds them, the thread that trains asks for them."""

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
