"""Batches made ahead by a thread, while the one before is being trained."""

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from queue import SimpleQueue
from types import TracebackType
from typing import Any

from fitroom.batch import Batch
from fitroom.inputs.batches import Batches


@dataclass(frozen=True, kw_only=True)
class PrefetchedBatch:
    """A batch, and what a run needs to make the one after it."""

    batch: Batch
    state: dict[str, Any]
    """Of the source when this batch was made and the next was not: `Source.restore` takes it. Empty if not recorded."""


def prefetch(
    batches: Batches, transform: Callable[[Batch], Batch], depth: int = 1, *, record: bool = True
) -> "PrefetchIterator":
    """The batches in order, each made and transformed while up to `depth` before it are not yet asked for.

    With a depth of 0 they are made when asked for, by whoever asks. An error comes at its turn. Leave it by `with` or
    `close`: the thread has then ended. Without `record` no state is taken, which saves 0.1 ms a batch.
    """
    return PrefetchIterator(batches, transform, depth, record)


class PrefetchIterator(Iterator[PrefetchedBatch]):
    """An iterator with a thread behind it."""

    def __init__(self, batches: Batches, transform: Callable[[Batch], Batch], depth: int, record: bool) -> None:
        self._batches, self._transform, self._record = batches, transform, record
        self._made: SimpleQueue[PrefetchedBatch | BaseException | None] = SimpleQueue()
        # Taken before a batch is made: no more of them are in memory than asked for.
        self._room = threading.Semaphore(depth)
        self._is_closed = False
        self._thread: threading.Thread | None = None
        if depth > 0:
            self._thread = threading.Thread(target=self._work, name="fitroom batches", daemon=True)
            self._thread.start()

    def __enter__(self) -> "PrefetchIterator":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __next__(self) -> PrefetchedBatch:
        if self._is_closed:
            raise StopIteration
        if self._thread is None:
            return self._next()
        found = self._made.get()
        self._room.release()
        if isinstance(found, PrefetchedBatch):
            return found
        self.close()
        if found is None:
            raise StopIteration
        try:
            raise found
        finally:
            del found  # it holds this frame, which would hold it and all that its traceback sees

    def close(self) -> None:
        """End the thread, when the batch it is at is made, and drop what it made ahead."""
        self._is_closed = True
        if self._thread is None:
            self._batches.close()
            return
        self._room.release()
        self._thread.join()
        while not self._made.empty():
            self._made.get()

    def _next(self) -> PrefetchedBatch:
        batch = next(self._batches)
        state = self._batches.state() if self._record else {}
        return PrefetchedBatch(batch=self._transform(batch), state=state)

    def _work(self) -> None:
        try:
            while True:
                self._room.acquire()
                if self._is_closed:
                    return
                self._made.put(self._next())
        except StopIteration:
            self._made.put(None)
        except BaseException as error:
            self._made.put(error)
        finally:
            self._batches.close()


def in_order(make: Callable[[int], Any], numbers: Iterable[int], *, workers: int, ahead: int) -> Iterator[Any]:
    """`make(number)` for each number, at most `ahead` of them before their turn. An error comes at its turn.

    >>> list(in_order(lambda number: number * number, range(4), workers=2, ahead=3))
    [0, 1, 4, 9]
    """
    waiting: deque[Future[Any]] = deque()
    threads = ThreadPoolExecutor(workers, thread_name_prefix="fitroom worker")
    try:
        for number in numbers:
            waiting.append(threads.submit(make, number))
            if len(waiting) >= max(ahead, 1):
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        threads.shutdown(wait=True, cancel_futures=True)
