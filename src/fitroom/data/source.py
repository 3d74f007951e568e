"""Pictures as `fitroom.fit` takes them: every batch by its number, so that a run goes on exactly where it was."""

from collections.abc import Iterator
from typing import Any

from fitroom.batch import Batch
from fitroom.data.batches import BatchMaker, BatchNumber
from fitroom.inputs.batches import Batches
from fitroom.inputs.contract import Resumes
from fitroom.inputs.host import batch_of
from fitroom.inputs.passes import Window, epoch_window, warn_of_end


class PictureSource:
    """The batches of one split. Order and changes are drawn from (seed, epoch) alone; nothing else is remembered."""

    resumes: Resumes = "exactly"
    resume_note = ""

    def __init__(
        self,
        maker: BatchMaker,
        described: dict[str, Any],
        *,
        shuffle: bool,
        class_weight: dict[int, float] | None,
        steps_per_epoch: int | None,
    ) -> None:
        self._maker, self._described, self._shuffle = maker, described, shuffle
        self._class_weight, self._steps = class_weight, steps_per_epoch

    @property
    def num_batches(self) -> int:
        """In an epoch."""
        return self._steps or self._maker.num_batches

    @property
    def batch_size(self) -> int:
        """Pictures in a full batch."""
        return self._maker.batch_size

    @property
    def num_samples(self) -> int:
        """Pictures."""
        return self._maker.num_samples

    @property
    def fingerprint(self) -> dict[str, Any]:
        """The content of all files, and what is made of them."""
        return {"kind": "pictures", **self._described, "shuffle": self._shuffle, "steps_per_epoch": self._steps}

    def peek(self) -> Batch:
        """The first batch of the first epoch."""
        batches = self._maker.made([BatchNumber(epoch=0, number=0, shuffle=self._shuffle)])
        return batch_of(next(batches), self._class_weight)

    def look(self) -> None:
        """Nothing is drawn by looking."""

    def epoch(self, epoch: int, start: int = 0) -> Batches:
        """The batches of an epoch, from batch `start` on."""
        made = self._made(epoch_window(self._maker.num_batches, self._steps, epoch), start)
        return Batches(made, first=start, batch_size=self.batch_size, state=self.state)

    def on_epoch_end(self) -> None:
        """Nothing to do: the next order is drawn from the next epoch's number."""

    def state(self) -> dict[str, Any]:
        """Nothing: a position says it all."""
        return {}

    def restore(self, state: dict[str, Any]) -> None:
        """Nothing to bring back."""

    def _made(self, found: Window, start: int) -> Iterator[Batch]:
        numbers = range(found.first + start, found.stop)
        wanted = (BatchNumber(epoch=found.number, number=number, shuffle=self._shuffle) for number in numbers)
        made = self._maker.made(wanted)
        try:
            for one in made:
                yield batch_of(one, self._class_weight)
        finally:
            made.close()
        if found.falls_short and self._steps is not None:
            warn_of_end(found.stop - found.first, self._steps)
