"""Splits as data sets: an `ImageSet` for plain `model.fit`, which gives `fitroom.fit` an `ImageSource`."""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np

from fitroom.batch import Batch
from fitroom.data.batches import BatchMaker, BatchNumber
from fitroom.data.cache import DiskCache, ImageCache, MemoryCache
from fitroom.data.files import Skipped
from fitroom.data.pixels import choose_pixel_library
from fitroom.data.reader import Reader
from fitroom.data.settings import Settings
from fitroom.data.split import ImageFile
from fitroom.environment import cache_folder
from fitroom.events import Events
from fitroom.inputs.batches import Batches, host_memory_error
from fitroom.inputs.contract import Resumes
from fitroom.inputs.host import batch_of
from fitroom.inputs.passes import Window, epoch_window, warn_of_end


class ImageSource:
    """The batches of one split for `fitroom.fit`. They depend on (seed, epoch) alone, so there is no state to save."""

    resumes: Resumes = "exactly"
    resume_note = ""

    def __init__(
        self,
        maker: BatchMaker,
        description: dict[str, Any],
        *,
        shuffle: bool,
        class_weight: dict[int, float] | None,
        steps_per_epoch: int | None,
    ) -> None:
        self._maker, self._description, self._shuffle = maker, description, shuffle
        self._class_weight, self._steps = class_weight, steps_per_epoch

    @property
    def num_batches(self) -> int:
        """How many batches an epoch has."""
        return self._steps or self._maker.num_batches

    @property
    def batch_size(self) -> int:
        """How many images a full batch has."""
        return self._maker.batch_size

    @property
    def num_samples(self) -> int:
        """How many images there are."""
        return self._maker.num_samples

    @property
    def fingerprint(self) -> dict[str, Any]:
        """What identifies the batches: the content of all files, and the settings."""
        return {"kind": "pictures", **self._description, "shuffle": self._shuffle, "steps_per_epoch": self._steps}

    def peek(self) -> Batch:
        """The first batch of the first epoch."""
        batches = self._maker.make_batches([BatchNumber(epoch=0, number=0, shuffle=self._shuffle)])
        return batch_of(next(batches), self._class_weight)

    def look(self) -> None:
        """Nothing to do: reading the first batch changes no state."""

    def epoch(self, epoch: int, start: int = 0) -> Batches:
        """The batches of an epoch, from batch `start` on."""
        batches = self._make_batches(epoch_window(self._maker.num_batches, self._steps, epoch), start)
        return Batches(batches, first=start, batch_size=self.batch_size, state=self.state)

    def on_epoch_end(self) -> None:
        """Nothing to do: the next order is drawn from the next epoch's number."""

    def state(self) -> dict[str, Any]:
        """Empty: the position in the epoch is enough to resume."""
        return {}

    def restore(self, state: dict[str, Any]) -> None:
        """Nothing to do: there is no state."""

    def _make_batches(self, found: Window, start: int) -> Iterator[Batch]:
        numbers = range(found.first + start, found.stop)
        wanted = (BatchNumber(epoch=found.number, number=number, shuffle=self._shuffle) for number in numbers)
        batches = self._maker.make_batches(wanted)
        try:
            for batch in batches:
                yield batch_of(batch, self._class_weight)
        finally:
            batches.close()
        if found.falls_short and self._steps is not None:
            warn_of_end(found.stop - found.first, self._steps)


class ImageSet(keras.utils.PyDataset):  # type: ignore[misc]
    """Batches of (uint8 images, class numbers) of one split.

    In plain Keras the epoch is counted by the calls of `on_epoch_end`; `fitroom.fit` asks for epochs by number.
    """

    def __init__(self, maker: BatchMaker, description: dict[str, Any], *, shuffled: bool) -> None:
        super().__init__(workers=1, max_queue_size=maker.num_prefetched)
        self.maker, self.description, self.shuffled = maker, description, shuffled
        self.batch_size, self.num_samples = maker.batch_size, maker.num_samples
        self.epoch = 0

    @property
    def files(self) -> list[tuple[Path, int]]:
        """Every image and the number of its class, in an order that does not change."""
        paths = [image.path for image in self.maker.reader.images]
        return list(zip(paths, self.maker.labels.tolist(), strict=True))

    def __len__(self) -> int:
        return self.maker.num_batches

    def __getitem__(self, number: int) -> tuple[Any, Any]:
        if not 0 <= number < len(self):
            raise IndexError(f"There are {len(self)} batches. Received: number {number}.")
        wanted = BatchNumber(epoch=self.epoch, number=number, shuffle=self.shuffled)
        try:
            return next(self.maker.make_batches([wanted]))
        except MemoryError as error:
            raise host_memory_error(number, self.batch_size, error) from error

    def on_epoch_end(self) -> None:
        """Count the epoch, so that the next one has another order."""
        self.epoch += 1

    def __fitroom_source__(
        self, *, shuffle: bool, class_weight: dict[int, float] | None, steps_per_epoch: int | None
    ) -> ImageSource:
        self.maker.reader.events = Events()  # of the training that asks: its listeners hear of bad files
        return ImageSource(
            self.maker,
            self.description,
            shuffle=shuffle and self.shuffled,
            class_weight=class_weight,
            steps_per_epoch=steps_per_epoch,
        )


def build_image_sets(
    splits: dict[str, list[ImageFile]], classes: list[str], settings: Settings, skipped: list[Skipped]
) -> dict[str, ImageSet]:
    """A data set for each split that has images; they share one cache."""
    digests = {image.digest for images in splits.values() for image in images}
    cache = _open_cache(settings, digests)
    numbers = {name: number for number, name in enumerate(classes)}

    def report_bad(path: Path, reason: str) -> None:
        skipped.append(Skipped(path, reason))

    sets = {}
    for name, images in splits.items():
        reader = Reader(
            images=images,
            image_size=settings.image_size,
            resize=settings.resize,
            seed=settings.seed,
            augment=settings.augment if name == "train" else None,
            cache=cache,
            report_bad=report_bad,
        )
        maker = BatchMaker(
            reader=reader,
            labels=np.array([numbers[image.label] for image in images], "int32"),
            batch_size=settings.batch_size,
            seed=settings.seed,
            workers=settings.workers,
        )
        sets[name] = ImageSet(maker, _describe(reader, classes, settings), shuffled=name == "train")
    return sets


def _describe(reader: Reader, classes: list[str], settings: Settings) -> dict[str, Any]:
    """All that decides what the batches hold; names and places of the files do not."""
    content = hashlib.sha256()
    for image in reader.images:
        content.update(f"{image.digest} {image.label}\n".encode())
    return {
        "classes": classes,
        "num_samples": len(reader.images),
        "content": content.hexdigest(),
        "image_size": settings.image_size,
        "resize": settings.resize,
        "batch_size": settings.batch_size,
        "seed": settings.seed,
        "pixels": choose_pixel_library().name,
        "augment": None if reader.augment is None else reader.augment.to_dict(),
    }


def _open_cache(settings: Settings, digests: set[str]) -> ImageCache | None:
    if settings.cache == "ram":
        return MemoryCache(settings.cache_limit_bytes)
    folder = cache_folder()
    if settings.cache is None or folder is None:
        return None
    return DiskCache(
        folder / "pictures",
        settings.cache_limit_bytes,
        image_size=settings.image_size,
        resize=settings.resize,
        wanted=digests,
    )
