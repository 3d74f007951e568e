"""PrefetchIterator: batches are made by a thread while the ones before are being trained."""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from queue import SimpleQueue
from types import TracebackType
from typing import Any

from fitroom.batch import Batch
from fitroom.inputs.batches import Batches
from fitroom.inputs.waiting import report_wait


@dataclass(frozen=True, kw_only=True)
class PrefetchedBatch:
    """A batch, and the state of the source from which the next one is made."""

    batch: Batch
    state: dict[str, Any]
    """The state after this batch was made and before the next, for `Source.restore`. Empty if not recorded."""


def prefetch(
    batches: Batches, transform: Callable[[Batch], Batch], depth: int = 1, *, record: bool = True
) -> "PrefetchIterator":
    """Iterate over batches in order, of which up to `depth` are made and transformed ahead by a thread.

    With a depth of 0 they are made by the caller, when asked for. An error is raised at its turn. Leave the iterator by
    `with` or `close`, which end the thread. Without `record` no state is taken, which saves 0.1 ms a batch.
    """
    return PrefetchIterator(batches, transform, depth, record)


class PrefetchIterator(Iterator[PrefetchedBatch]):
    """An iterator over batches that a thread makes ahead."""

    def __init__(self, batches: Batches, transform: Callable[[Batch], Batch], depth: int, record: bool) -> None:
        self._batches, self._transform, self._record = batches, transform, record
        self._made: SimpleQueue[PrefetchedBatch | BaseException | None] = SimpleQueue()
        # Acquired before a batch is made, so that no more than `depth` of them are in memory.
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
        begin = time.perf_counter()
        if self._thread is None:
            made = self._next()
            report_wait(begin, made.batch.size)
            return made
        found = self._made.get()
        self._room.release()
        if isinstance(found, PrefetchedBatch):
            report_wait(begin, found.batch.size)
            return found
        self.close()
        if found is None:
            raise StopIteration
        try:
            raise found
        finally:
            del (
                found
            )  # else this frame and the error, with all that its traceback refers to, would keep each other alive

    def close(self) -> None:
        """End the thread, after the batch that it is making, and drop what it made ahead."""
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
    """Call `make(number)` for each number, at most `ahead` of them before their turn. An error is raised at its turn.

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
