"""The splits of a folder as sets that give batches."""

import hashlib
from pathlib import Path
from typing import Any

import numpy as np

from fitroom.data.batches import BatchMaker
from fitroom.data.kept import InMemory, Kept, OnDisk
from fitroom.data.picture_set import PictureSet
from fitroom.data.pixels import pixels
from fitroom.data.reader import Reader
from fitroom.data.settings import Settings
from fitroom.data.skipped import Skipped
from fitroom.data.split import Picture
from fitroom.environment import cache_folder


def picture_sets(
    splits: dict[str, list[Picture]], classes: list[str], settings: Settings, skipped: list[Skipped]
) -> dict[str, PictureSet]:
    """A set for each split that has pictures; they share one cache."""
    digests = {picture.digest for pictures in splits.values() for picture in pictures}
    kept = _kept(settings, digests)
    numbers = {name: number for number, name in enumerate(classes)}

    def went_bad(path: Path, reason: str) -> None:
        skipped.append(Skipped(path, reason))

    sets = {}
    for name, pictures in splits.items():
        reader = Reader(
            pictures=pictures,
            image_size=settings.image_size,
            resize=settings.resize,
            seed=settings.seed,
            augment=settings.augment if name == "train" else None,
            kept=kept,
            went_bad=went_bad,
        )
        maker = BatchMaker(
            reader=reader,
            labels=np.array([numbers[picture.label] for picture in pictures], "int32"),
            batch_size=settings.batch_size,
            seed=settings.seed,
            workers=settings.workers,
        )
        sets[name] = PictureSet(maker, _described(reader, classes, settings), shuffled=name == "train")
    return sets


def _described(reader: Reader, classes: list[str], settings: Settings) -> dict[str, Any]:
    """What makes the batches what they are; where the files lie and how they are called does not."""
    content = hashlib.sha256()
    for picture in reader.pictures:
        content.update(f"{picture.digest} {picture.label}\n".encode())
    return {
        "classes": classes,
        "num_samples": len(reader.pictures),
        "content": content.hexdigest(),
        "image_size": settings.image_size,
        "resize": settings.resize,
        "batch_size": settings.batch_size,
        "seed": settings.seed,
        "pixels": pixels().name,
        "augment": None if reader.augment is None else reader.augment.to_dict(),
    }


def _kept(settings: Settings, digests: set[str]) -> Kept | None:
    if settings.cache == "ram":
        return InMemory(settings.cache_limit_bytes)
    folder = cache_folder()
    if settings.cache is None or folder is None:
        return None
    return OnDisk(
        folder / "pictures",
        settings.cache_limit_bytes,
        image_size=settings.image_size,
        resize=settings.resize,
        wanted=digests,
    )
