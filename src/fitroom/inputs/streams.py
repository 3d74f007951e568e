"""Streams as sources: datasets that can be iterated anew, and iterators that cannot."""

import warnings
from collections.abc import Iterator
from typing import Any

from fitroom.batch import Batch
from fitroom.errors import InputError
from fitroom.inputs import randomness
from fitroom.inputs.batches import Batches, keep_random_state
from fitroom.inputs.contract import Resumes
from fitroom.inputs.host import batch_of, pack_for_step
from fitroom.inputs.keras_loader import keras_backend
from fitroom.inputs.kinds import Kind
from fitroom.inputs.passes import warn_of_end
from fitroom.inputs.stream_reader import END, StreamReader


class StreamSource:
    """The batches of anything that can be iterated over.

    Without `steps_per_epoch` an epoch is one pass. With it, epochs follow each other through a pass, and the next pass
    begins where one ends, as in Keras. A resumed run reads the earlier batches of its pass again and skips them, for
    which it needs the state. Without one, an epoch begins where the last stopped, whatever its number.
    """

    resumes: Resumes = "by skipping"

    def __init__(self, kind: Kind, *, class_weight: dict[int, float] | None, steps_per_epoch: int | None) -> None:
        self._kind, self._class_weight, self._steps = kind, class_weight, steps_per_epoch
        if kind.num_batches == 0:
            raise InputError(f"There are no batches in the data. Received: an empty {kind.name}.")
        self._reading = StreamReader(kind)
        self._pending: dict[str, Any] | None = None
        self._last_epoch = -1
        self._length = kind.num_batches
        """The number of batches in a pass, once it is known."""

    @property
    def num_batches(self) -> int | None:
        """The number of batches in an epoch; None where it is not known."""
        return self._steps or self._kind.num_batches

    @property
    def batch_size(self) -> int | None:
        """Samples in a full batch, where the dataset says so."""
        return self._kind.batch_size

    @property
    def num_samples(self) -> int | None:
        """The number of samples, where the dataset says so."""
        return self._kind.num_samples

    @property
    def resume_note(self) -> str:
        """For people: what must hold for a resumed run to be exactly the same."""
        return self._kind.resume_note

    @property
    def fingerprint(self) -> dict[str, Any]:
        """What is known without reading the data."""
        counts = {"num_batches": self._kind.num_batches, "batch_size": self.batch_size, "num_samples": self.num_samples}
        return {"kind": self._kind.name, **self._kind.described, **counts, "steps_per_epoch": self._steps}

    def peek(self) -> Batch:
        """The first batch; it is stored, because not all data can be read again."""
        found = self._reading.peek()
        if found is END:
            raise InputError(
                f"There are no batches in the data. Received: a {self._kind.name} that ends before its first batch."
            )
        return self._batch(found)

    def epoch(self, epoch: int, start: int = 0) -> Batches:
        """The batches of an epoch, from batch `start` on."""
        reading, state, self._pending = self._reading, self._pending, None
        if state is not None:
            with keep_random_state(state, start):
                reading.restore(state["reading"])
        # An epoch asked for again, such as validation's, and one that is a pass begin at the beginning.
        if epoch <= self._last_epoch:
            self._length = self._kind.num_batches
        again = epoch <= self._last_epoch or self._steps is None
        if reading.is_over or (again and not reading.is_fresh and (start == 0 or state is None)):
            reading.begin()
        if state is None:
            reading.skip(start)
        self._last_epoch = epoch
        return Batches(self._made(start), first=start, batch_size=self.batch_size, state=self.state)

    def look(self) -> None:
        """Read the first batch of an extra pass, as Keras does to build a model.

        A seeded shuffle has another order in every pass: training must get the same passes as in Keras.
        """
        self._reading.make_spare(look=True)

    def on_epoch_end(self) -> None:
        """After a pass of known length make an iterator that is not used, as Keras does."""
        if self._steps is None and self._reading.drawn == self._length:
            self._reading.make_spare(look=False)
        if self._reading.is_over:
            self._length = self._reading.drawn

    def state(self) -> dict[str, Any]:
        """The position in the pass, the random state at its beginning, and the one now."""
        return {"random": randomness.capture(), "reading": self._reading.state(), "length": self._length}

    def restore(self, state: dict[str, Any]) -> None:
        """Set the state that the next call of `epoch` will restore."""
        self._pending = state
        self._length = state.get("length", self._length)

    def _made(self, start: int) -> Iterator[Batch]:
        for made in range(start, self._steps) if self._steps else _forever(start):
            found = self._reading.draw()
            if found is END and made == 0 and self._reading.drawn:
                self._reading.begin()  # the last epoch took the last batch of its pass without seeing the end
                found = self._reading.draw()
            if found is END:
                self._warn_of_end(made)
                return
            yield self._batch(found)

    def _batch(self, found: Any) -> Batch:
        if not self._kind.is_torch_loader:
            found = pack_for_step(found)
        elif isinstance(found, list) and keras_backend() != "torch":
            found = tuple(found)
        return batch_of(found, self._class_weight)

    def _warn_of_end(self, made: int) -> None:
        if self._steps is not None:
            warn_of_end(made, self._steps)
        elif not self._kind.begins_again and self._reading.number > 0:
            warnings.warn(
                f"The {self._kind.name} is used up: this epoch has its first {made} batches again, as in Keras. A "
                "generator lasts for one epoch unless `steps_per_epoch` divides it.",
                stacklevel=2,
            )


def _forever(start: int) -> Iterator[int]:
    while True:
        yield start
        start += 1
