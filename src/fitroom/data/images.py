"""The functions of `fitroom.data`: a folder of images as a data set, one image, one thumbnail."""

import logging
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from fitroom.data.augment import Augment, parse_augment
from fitroom.data.files import Skipped, display_name
from fitroom.data.findings import check_classes, find_warnings, strict_error
from fitroom.data.host_memory import available_bytes
from fitroom.data.layout import find_layout
from fitroom.data.pictures import Pictures
from fitroom.data.scan import Progress, ScannedFile, scan
from fitroom.data.settings import Settings, check_resize, check_shares, default_workers
from fitroom.data.split import Fold, ImageFile, assign_fold, assign_splits, count_duplicates, find_conflicts
from fitroom.errors import InputError
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
    fold: str | None = None,
    resize: Literal["crop", "pad", "stretch"] = "crop",
    augment: Augment | bool | None = None,
    cache: Literal["ram", "disk"] | None = None,
    cache_limit: str | int = "4GiB",
    strict: bool = False,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Pictures:
    """The images of a folder: one folder per class, `train/ val/ test/` above those, or a CSV file of path,label.

    Every file is scanned once; a file that does not decode is listed in `skipped` with the reason. Without a split in
    the folder, a share of each class is held out by content and `seed`. Order and augmentation of an epoch depend on
    the seed and its number alone, so that `fitroom.fit(model, data.train, run_dir=...)` resumes exactly.

    >>> data = fitroom.data.images("flowers/", image_size=224, augment=True)  # doctest: +SKIP
    >>> fitroom.fit(model, data.train, validation_data=data.validation)  # doctest: +SKIP

    Args:
        folder: the folder or CSV file.
        image_size: height and width of the images, in pixels.
        batch_size: images per batch.
        seed: of split, order and augmentation.
        validation: share of the images held out for validation, unless the folder has a split for it.
        test: share held out for a test, likewise.
        fold: which of several folds is validation, in place of a share: "2/5" for the second of five. A split of the
            folder into training and validation is not used then.
        resize: `crop` takes the middle square, `pad` adds black borders, `stretch` distorts.
        augment: True for random changes to training images, or an `Augment` with settings.
        cache: where decoded images are cached, if at all.
        cache_limit: the most memory or disk space of the cache; in RAM never more than half of what is free.
        strict: raise InputError for files that cannot be used, instead of skipping them.
        workers: threads that decode. None: one per core, at most 16.
        progress: called during the scan with a text, how many files are done, and how many there are.
    """
    settings = Settings(
        image_size=image_size,
        batch_size=batch_size,
        seed=seed,
        resize=resize,
        augment=parse_augment(augment),
        cache=cache,
        cache_limit_bytes=_cache_limit_bytes(parse_bytes(cache_limit), cache),
        workers=default_workers() if workers is None else workers,
    )
    check_shares(validation, test)
    held_out = Fold.parse(fold) if fold is not None else None
    place = Path(folder)
    layout = find_layout(place)
    scanned = scan([candidate.path for candidate in layout.candidates], workers=settings.workers, progress=progress)
    skipped = list(layout.skipped)
    given: dict[str | None, list[ImageFile]] = defaultdict(list)
    for candidate, file in zip(layout.candidates, scanned, strict=True):
        found = _check_usable(file, settings)
        if isinstance(found, str):
            skipped.append(Skipped(candidate.path, found))
        else:
            image = ImageFile(candidate.path, candidate.label, file.digest, file.size_bytes, found)
            given[candidate.split].append(image)
    if strict and skipped:
        raise strict_error(place, skipped)
    usable = [image for split in given.values() for image in split]
    check_classes(place, layout, given[None] + given["train"], skipped)
    if held_out is None:
        splits = _complete_splits(given, validation=validation, test=test, seed=seed)
    else:
        splits = _divide_into_folds(given, held_out, test=test, seed=seed)
    conflicts = find_conflicts(usable)
    warnings = [*layout.warnings, *find_warnings(layout, splits, conflicts, settings)]
    for warning in warnings:
        _log.warning("fitroom: %s", warning)
    return Pictures(
        place=place,
        layout=layout.words,
        settings=settings,
        splits=splits,
        skipped=skipped,
        duplicates=count_duplicates(usable),
        conflicts=[[image.path for image in copies] for copies in conflicts],
        warnings=warnings,
    )


def _cache_limit_bytes(asked_bytes: int, cache: str | None) -> int:
    """The limit of the cache: in memory never more than half of what is free, which leaves the rest for training."""
    return min(asked_bytes, available_bytes() // 2) if cache == "ram" else asked_bytes


def _complete_splits(
    given: dict[str | None, list[ImageFile]], *, validation: float, test: float, seed: int
) -> dict[str, list[ImageFile]]:
    """The splits that the layout gives, with those it lacks held out of the training images."""
    to_divide = given[None] + given["train"]
    split_of = assign_splits(
        to_divide,
        validation=0.0 if given["validation"] else validation,
        test=0.0 if given["test"] else test,
        seed=seed,
    )
    splits: dict[str, list[ImageFile]] = {"train": [], "validation": given["validation"], "test": given["test"]}
    for image in to_divide:
        splits[split_of[image.path]].append(image)
    return {name: images for name, images in splits.items() if images}


def _divide_into_folds(
    given: dict[str | None, list[ImageFile]], fold: Fold, *, test: float, seed: int
) -> dict[str, list[ImageFile]]:
    """The splits with one of several folds as validation; the test images are the same in every fold."""
    pool: dict[str | None, list[ImageFile]] = defaultdict(list)
    pool["train"] = given[None] + given["train"] + given["validation"]
    pool["test"] = given["test"]
    splits = _complete_splits(pool, validation=0.0, test=test, seed=seed)
    split_of = assign_fold(splits["train"], fold, seed=seed)
    folds = {
        name: [image for image in splits["train"] if split_of[image.path] == name] for name in ("train", "validation")
    }
    return {name: images for name, images in (splits | folds).items() if images}


def _check_usable(file: ScannedFile, settings: Settings) -> "Header | str":
    """The header of an image, or the reason why it is left out: a huge one may fit into memory only at 1/8 scale."""
    from fitroom.data.decode import check_fits
    from fitroom.data.opening import BadImageError

    if not isinstance(file.found, str):
        try:
            check_fits(file.found, settings.image_size, settings.resize)
        except BadImageError as error:
            return str(error)
    return file.found


def read_picture(path: str | Path, image_size: int, resize: str = "crop") -> Any:
    """Read an image as in training: uint8, (image_size, image_size, 3). Raises InputError where it cannot be read.

    Args:
        path: the file.
        image_size: height and width of the result, in pixels.
        resize: `crop`, `pad` or `stretch`, as for `images`.
    """
    import numpy as np

    from fitroom.data.decode import decode_image, verify_image

    mode = check_resize(resize)
    return _decode_file(path, lambda data: np.array(decode_image(data, verify_image(data), image_size, mode)))


def thumbnail(path: str | Path, size: int = 96) -> str:
    """A small copy of an image, not cropped, as the `src` of an HTML `<img>`: "data:image/jpeg;base64,...".

    Args:
        path: the file.
        size: the longer side, in pixels.
    """
    import base64
    import io

    from fitroom.data.decode import decode_pillow

    file = io.BytesIO()
    _decode_file(path, lambda data: decode_pillow(data, size, "whole")).save(file, "JPEG", quality=80)
    return "data:image/jpeg;base64," + base64.b64encode(file.getvalue()).decode()


def _decode_file(path: str | Path, decode: Callable[[bytes], Any]) -> Any:
    from fitroom.data.decode import read_bytes
    from fitroom.data.opening import BadImageError

    try:
        return decode(read_bytes(Path(path)))
    except BadImageError as error:
        raise InputError(
            f"{display_name(path)} cannot be used as an image: {error}.", hint="give a JPEG or PNG file"
        ) from None
