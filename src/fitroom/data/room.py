"""Memory lent to the threads that decode: whatever pictures come, all of them together stay below a number of bytes."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Room:
    """So many bytes, to be lent.

    >>> room = Room(100)
    >>> with room.lent(60), room.lent(40):
    ...     room.free_bytes
    0
    """

    def __init__(self, total_bytes: int) -> None:
        self.total_bytes = self.free_bytes = total_bytes
        self._changed = threading.Condition()

    @contextmanager
    def lent(self, size_bytes: int) -> Iterator[None]:
        """Wait until so many are free. More than there are is lent alone."""
        size_bytes = min(size_bytes, self.total_bytes)
        with self._changed:
            self._changed.wait_for(lambda: self.free_bytes >= size_bytes)
            self.free_bytes -= size_bytes
        try:
            yield
        finally:
            with self._changed:
                self.free_bytes += size_bytes
                self._changed.notify_all()
