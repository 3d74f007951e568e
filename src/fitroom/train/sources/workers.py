"""Batches made by several threads at once, given out in the order in which they were asked for."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any


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
