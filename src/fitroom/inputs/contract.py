"""What the loop of training asks of its data, whatever they come from."""

from typing import Any, Literal, Protocol

from fitroom.batch import Batch
from fitroom.inputs.batches import Batches

Resumes = Literal["exactly", "by skipping"]


class Source(Protocol):
    """The batches of each epoch, made on the host.

    A run that goes on calls `restore` with the state that its last batch was recorded with, then `epoch` with the
    position. Restore the process's own random state before `epoch`, not after: `epoch` sets what the data need.
    """

    @property
    def num_batches(self) -> int | None:
        """In an epoch; None where only its end will tell."""

    @property
    def batch_size(self) -> int | None:
        """Samples in a full batch, where known."""

    @property
    def num_samples(self) -> int | None:
        """In all of the data, where known."""

    @property
    def resumes(self) -> Resumes:
        """Whether a run jumps to where it was, or reads again what came before and throws it away."""

    @property
    def resume_note(self) -> str:
        """What cannot be promised to a run that goes on, in words for its user; empty where nothing is left open."""

    @property
    def fingerprint(self) -> dict[str, Any]:
        """Kind, shapes, dtypes and counts as JSON takes them, to notice that a run folder is given other data."""

    def peek(self) -> Batch:
        """The first batch, which comes again when training begins. Raises InputError where there is none."""

    def look(self) -> None:
        """Do as Keras does where it looks at a batch beforehand: what that draws is not drawn by training then."""

    def epoch(self, epoch: int, start: int = 0) -> Batches:
        """The batches of an epoch, from batch `start` on.

        The dataset's own `on_epoch_begin` is called here, and batches that have to be skipped are read here; the
        batches themselves are made when they are asked for, by whichever thread asks.
        """

    def on_epoch_end(self) -> None:
        """The epoch was trained: for datasets that want to know."""

    def state(self) -> dict[str, Any]:
        """What `restore` needs to make the next batch as it would be made now; JSON's values and NumPy's arrays."""

    def restore(self, state: dict[str, Any]) -> None:
        """Keep a state for the next call of `epoch`, which brings it back."""
