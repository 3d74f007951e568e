"""Transfer of batches to the card, with the next one prefetched during a step.

JAX has a copy to the card wait for all that the card was given to do before. So the next batch is transferred before
the card is given the step that comes first: the two run side by side. Of the `batches_ahead` batches that wait on the
host (see `Stepper` in `backends/contract.py`) only this next one is copied ahead, and only where the card has room.
"""

from collections.abc import Callable
from typing import Any

import jax

from fitroom.backends.jax.out_of_memory import is_out_of_memory
from fitroom.backends.jax.train.room import has_free, has_room
from fitroom.backends.prefetch import PrefetchQueue
from fitroom.batch import Batch


class Transfer:
    """Transfers batches to the device that JAX trains on."""

    def __init__(self) -> None:
        self.put: Callable[[Batch], Any] = _put
        """Copies a batch to the device, or to several."""
        self.queue = PrefetchQueue()
        self._next: Batch | None = None
        """The batch of the host that follows the one that was taken."""
        self._prefetched: tuple[Batch, Any] | None = None
        """A batch of the host, and its copy on the card, which may not be complete yet."""

    def take(self, batch: Batch) -> Any:
        """The batch on the device, with its transfer complete: what fails later would fail in the step."""
        following = self.queue.next_after(batch)
        self._next = None if jax.default_backend() == "cpu" else following  # there the host is the device
        prefetched, self._prefetched = self._prefetched, None
        on_device = prefetched[1] if prefetched is not None and prefetched[0] is batch else self.put(batch)
        jax.block_until_ready(on_device.unpacked())
        return on_device

    @property
    def next_bytes(self) -> int:
        """The size of the batch after the one that was taken; 0 where it is not known yet."""
        return 0 if self._next is None else sum(leaf.nbytes for leaf in jax.tree.leaves(self._next.unpacked()))

    def prefetch_next(self, needed_bytes: int) -> None:
        """Start the transfer of the next batch, if that leaves what the step needs. No lack of memory is raised."""
        if self._next is None or not has_free(self.next_bytes + needed_bytes):
            return
        try:
            on_device = self.put(self._next)
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            return
        # It may have come to lie where the step needs all its memory in one piece: then it is given back.
        if has_room(needed_bytes):
            self._prefetched = (self._next, on_device)

    def drop(self) -> None:
        """Free what was prefetched and not taken."""
        self._prefetched = None

    def end(self) -> None:
        """Drop all that was prefetched: no batch follows."""
        self.queue.clear()
        self._next = None
        self.drop()


def _put(batch: Batch) -> Batch:
    return batch.map(jax.device_put)
