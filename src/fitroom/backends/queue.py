"""Batches that were made ahead, in the order in which they come."""

from collections import deque

from fitroom.batch import Batch


class Coming:
    """Told of batches by the thread that makes them, asked by the one that trains."""

    def __init__(self) -> None:
        self._batches: deque[Batch] = deque()

    def expect(self, batch: Batch) -> None:
        """It comes after those that were told of before."""
        self._batches.append(batch)

    def after(self, batch: Batch) -> Batch | None:
        """The batch that comes next, if it is there already; this one and those before it are forgotten."""
        for number, each in enumerate(list(self._batches), start=1):
            if each is batch:
                for _ in range(number):
                    self._batches.popleft()
                break
        return self._batches[0] if self._batches else None

    def end(self) -> None:
        """None of them comes any more."""
        self._batches.clear()
