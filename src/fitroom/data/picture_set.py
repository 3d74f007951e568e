"""One split of the pictures, for `fitroom.fit` and for plain `model.fit`."""

from pathlib import Path
from typing import Any

import keras

from fitroom.data.batches import BatchMaker, BatchNumber
from fitroom.data.source import PictureSource
from fitroom.events import Events
from fitroom.inputs.batches import host_memory_error


class PictureSet(keras.utils.PyDataset):  # type: ignore[misc]
    """Batches of (uint8 pictures, class numbers).

    In plain Keras the epoch is counted by the calls of `on_epoch_end`; `fitroom.fit` asks for epochs by number.
    """

    def __init__(self, maker: BatchMaker, described: dict[str, Any], *, shuffled: bool) -> None:
        super().__init__(workers=1, max_queue_size=maker.num_ahead)
        self.maker, self.described, self.shuffled = maker, described, shuffled
        self.batch_size, self.num_samples = maker.batch_size, maker.num_samples
        self.epoch = 0

    @property
    def files(self) -> list[tuple[Path, int]]:
        """Every picture and the number of its class, in an order that does not change."""
        paths = [picture.path for picture in self.maker.reader.pictures]
        return list(zip(paths, self.maker.labels.tolist(), strict=True))

    def __len__(self) -> int:
        return self.maker.num_batches

    def __getitem__(self, number: int) -> tuple[Any, Any]:
        if not 0 <= number < len(self):
            raise IndexError(f"There are {len(self)} batches. Received: number {number}.")
        wanted = BatchNumber(epoch=self.epoch, number=number, shuffle=self.shuffled)
        try:
            return next(self.maker.made([wanted]))
        except MemoryError as error:
            raise host_memory_error(number, self.batch_size, error) from error

    def on_epoch_end(self) -> None:
        """The next epoch has another order."""
        self.epoch += 1

    def __fitroom_source__(
        self, *, shuffle: bool, class_weight: dict[int, float] | None, steps_per_epoch: int | None
    ) -> PictureSource:
        self.maker.reader.events = Events()  # made within a training: those who listen to it hear of its pictures
        return PictureSource(
            self.maker,
            self.described,
            shuffle=shuffle and self.shuffled,
            class_weight=class_weight,
            steps_per_epoch=steps_per_epoch,
        )
