"""Batches on their way to the card.

JAX has a copy to the card wait for all that the card was given to do before. So the next batch is sent before the card
is given the step that comes first: the two go on side by side.
"""

import jax

from fitroom.backends.jax.out_of_memory import is_out_of_memory
from fitroom.backends.jax.train.room import has_free, has_room
from fitroom.backends.queue import Coming
from fitroom.batch import Batch


class Sending:
    """The way to the device that JAX trains on."""

    def __init__(self) -> None:
        self.coming = Coming()
        self._following: Batch | None = None
        self._sent: tuple[Batch, Batch] | None = None
        """A batch of the host, and the same on the card or on its way."""

    def take(self, batch: Batch) -> Batch:
        """The batch on the device, all of it there: what fails later would fail in the step."""
        following = self.coming.after(batch)
        self._following = None if jax.default_backend() == "cpu" else following  # the CPU is no place but the host
        sent, self._sent = self._sent, None
        moved = sent[1] if sent is not None and sent[0] is batch else _moved(batch)
        jax.block_until_ready(moved.unpacked())
        return moved

    @property
    def next_bytes(self) -> int:
        """The size of what comes after the batch that was taken, as far as that is known."""
        return (
            0 if self._following is None else sum(leaf.nbytes for leaf in jax.tree.leaves(self._following.unpacked()))
        )

    def send_next(self, needed_bytes: int) -> None:
        """Send it, if that leaves what the step needs. It never raises for want of memory."""
        if self._following is None or not has_free(self.next_bytes + needed_bytes):
            return
        try:
            moved = _moved(self._following)
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            return
        # It may have come to lie where the step needs all its memory in one piece: then it is given back.
        if has_room(needed_bytes):
            self._sent = (self._following, moved)

    def drop(self) -> None:
        """Give back what was sent and not taken."""
        self._sent = None

    def end(self) -> None:
        """No batch follows."""
        self.coming.end()
        self._following = None
        self.drop()


def _moved(batch: Batch) -> Batch:
    return batch.map(jax.device_put)
