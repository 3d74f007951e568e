"""`fitroom.data.images`: a folder of pictures as `fitroom.fit` takes it."""

import logging
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from fitroom.data.augment import Augment, augment_of
from fitroom.data.findings import check_classes, not_strict, warnings_of
from fitroom.data.host import available_bytes
from fitroom.data.layout import layout_of
from fitroom.data.pictures import Pictures
from fitroom.data.scan import Progress, Seen, scan
from fitroom.data.settings import Settings, check_share, usual_workers
from fitroom.data.skipped import Skipped
from fitroom.data.split import Picture, assigned, in_two_classes, num_duplicates
from fitroom.units import parse_bytes

if TYPE_CHECKING:
    from fitroom.data.opening import Header

_log = logging.getLogger("fitroom")


def images(
    folder: str | Path,
    image_size: int = 299,
    batch_size: int = 32,
    *,
    seed: int = 0,
    validation: float = 0.2,
    test: float = 0.0,
    resize: Literal["crop", "pad", "stretch"] = "crop",
    augment: Augment | bool | None = None,
    cache: Literal["ram", "disk"] | None = None,
    cache_limit: str | int = "4GiB",
    strict: bool = False,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Pictures:
    """The pictures of a folder: one folder per class, `train/ val/ test/` above it, or a CSV file of path,label.

    Every file is looked at once; what does not decode is in `skipped` with the reason (`strict` raises instead).
    Without a split, parts of each class are held out by content and `seed`. Order and random changes of an epoch
    depend on the seed and its number alone, so that `fitroom.fit(model, pictures.train, run_dir=...)` goes on exactly.

    >>> pictures = fitroom.data.images("flowers/", image_size=224, augment=True)  # doctest: +SKIP
    >>> fitroom.fit(model, pictures.train, validation_data=pictures.validation)  # doctest: +SKIP
    """
    settings = Settings(
        image_size=image_size,
        batch_size=batch_size,
        seed=seed,
        resize=resize,
        augment=augment_of(augment),
        cache=cache,
        cache_limit_bytes=_cache_limit_bytes(parse_bytes(cache_limit), cache),
        workers=usual_workers() if workers is None else workers,
    )
    check_share(validation, test)
    place = Path(folder)
    layout = layout_of(place)
    seen = scan([candidate.path for candidate in layout.candidates], workers=settings.workers, progress=progress)
    skipped = list(layout.skipped)
    given: dict[str | None, list[Picture]] = defaultdict(list)
    for candidate, look in zip(layout.candidates, seen, strict=True):
        found = _usable(look, settings)
        if isinstance(found, str):
            skipped.append(Skipped(candidate.path, found))
        else:
            picture = Picture(candidate.path, candidate.label, look.digest, look.size_bytes, found)
            given[candidate.split].append(picture)
    if strict and skipped:
        raise not_strict(place, skipped)
    pictures = [picture for split in given.values() for picture in split]
    check_classes(place, layout, given[None] + given["train"], skipped)
    splits = _splits(given, validation=validation, test=test, seed=seed)
    conflicts = in_two_classes(pictures)
    warnings = [*layout.warnings, *warnings_of(layout, splits, conflicts, settings)]
    for warning in warnings:
        _log.warning("fitroom: %s", warning)
    return Pictures(
        place=place,
        layout=layout.words,
        settings=settings,
        splits=splits,
        skipped=skipped,
        duplicates=num_duplicates(pictures),
        conflicts=[[picture.path for picture in copies] for copies in conflicts],
        warnings=warnings,
    )


def _cache_limit_bytes(asked_bytes: int, cache: str | None) -> int:
    """In memory never more than half of what is free: the rest is for training."""
    return min(asked_bytes, available_bytes() // 2) if cache == "ram" else asked_bytes


def _splits(
    given: dict[str | None, list[Picture]], *, validation: float, test: float, seed: int
) -> dict[str, list[Picture]]:
    """What the layout says, and what it leaves open held out of the training pictures."""
    to_divide = given[None] + given["train"]
    sides = assigned(
        to_divide,
        validation=0.0 if given["validation"] else validation,
        test=0.0 if given["test"] else test,
        seed=seed,
    )
    splits: dict[str, list[Picture]] = {"train": [], "validation": given["validation"], "test": given["test"]}
    for picture in to_divide:
        splits[sides[picture.path]].append(picture)
    return {name: pictures for name, pictures in splits.items() if pictures}


def _usable(look: Seen, settings: Settings) -> "Header | str":
    """What a file says of itself, or why it is left out; a huge one may decode at an eighth only."""
    from fitroom.data.decode import check_fits
    from fitroom.data.opening import BadPictureError

    if not isinstance(look.found, str):
        try:
            check_fits(look.found, settings.image_size, settings.resize)
        except BadPictureError as error:
            return str(error)
    return look.found
