"""Many processes side by side on one card, as many as there is room for."""

import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


class Room:
    """Bytes of the card, lent and given back."""

    def __init__(self, total_bytes: int) -> None:
        self._free_bytes = self._total_bytes = total_bytes
        self._changed = threading.Condition()

    def run(self, needed_bytes: int, work: Callable[[], Result]) -> Result:
        """Do the work when there is room for it; what needs more than there is waits to be alone."""
        needed_bytes = min(needed_bytes, self._total_bytes)
        with self._changed:
            self._changed.wait_for(lambda: self._free_bytes >= needed_bytes)
            self._free_bytes -= needed_bytes
        try:
            return work()
        finally:
            with self._changed:
                self._free_bytes += needed_bytes
                self._changed.notify_all()


def run_side_by_side(
    items: Iterable[Item],
    work: Callable[[Item], Result],
    needed_bytes: Callable[[Item], int],
    *,
    room: Room,
    workers: int,
) -> Iterator[Result]:
    """Results as they come."""
    with ThreadPoolExecutor(workers) as pool:
        futures = [
            pool.submit(lambda item=item: room.run(needed_bytes(item), lambda: work(item)))  # type: ignore[misc]
            for item in items
        ]
        for future in as_completed(futures):
            yield future.result()
