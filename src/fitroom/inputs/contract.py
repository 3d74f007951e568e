"""The interface of data to the training loop, for every kind of data."""

from typing import Any, Literal, Protocol

from fitroom.batch import Batch
from fitroom.inputs.batches import Batches

Resumes = Literal["exactly", "by skipping"]


class Source(Protocol):
    """The batches of each epoch, made on the host.

    A resumed run calls `restore` with the state that was recorded with its last batch, then `epoch` with the position.
    Restore the process's own random state before `epoch`, not after: `epoch` sets what the data need.
    """

    @property
    def num_batches(self) -> int | None:
        """The number of batches in an epoch; None where it is not known before its end."""

    @property
    def batch_size(self) -> int | None:
        """Samples in a full batch, where known."""

    @property
    def num_samples(self) -> int | None:
        """The number of samples in all of the data, where known."""

    @property
    def resumes(self) -> Resumes:
        """Whether a resumed run jumps to its position, or reads the batches before it again and skips them."""

    @property
    def resume_note(self) -> str:
        """For people: what cannot be guaranteed when a run is resumed; empty where the result is exactly the same."""

    @property
    def fingerprint(self) -> dict[str, Any]:
        """Kind, shapes, dtypes and counts as JSON takes them, to notice that a run folder is given other data."""

    def peek(self) -> Batch:
        """The first batch, which training will get again. Raises InputError where there is none."""

    def look(self) -> None:
        """Do what Keras does when it reads a batch to build a model, so that the same random numbers are drawn."""

    def epoch(self, epoch: int, start: int = 0) -> Batches:
        """The batches of an epoch, from batch `start` on.

        The dataset's own `on_epoch_begin` is called here, and batches that have to be skipped are read here; the
        batches themselves are made when they are asked for, by whichever thread asks.
        """

    def on_epoch_end(self) -> None:
        """Called after each epoch, for the hooks of datasets."""

    def state(self) -> dict[str, Any]:
        """What `restore` needs to make the next batch as it would be made now: JSON values and NumPy arrays."""

    def restore(self, state: dict[str, Any]) -> None:
        """Set the state that the next call of `epoch` will restore."""
