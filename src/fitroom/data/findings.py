"""Problems that the scan of a folder found: those that prevent training, and warnings."""

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from fitroom.data.files import Skipped, display_name, folders_in, list_skipped
from fitroom.data.layout import Layout
from fitroom.data.settings import Settings
from fitroom.data.split import ImageFile
from fitroom.environment import cache_folder
from fitroom.errors import InputError
from fitroom.units import format_bytes

_MAX_LISTED = 5


def strict_error(place: Path, skipped: Sequence[Skipped]) -> InputError:
    """The error of a scan with `strict=True`, naming the files that cannot be used."""
    return InputError(
        f"In {display_name(place)} {list_skipped(place, skipped)}.",
        hint="remove or repair them, or train on the rest without `strict`",
    )


def check_classes(place: Path, layout: Layout, images: Sequence[ImageFile], skipped: Sequence[Skipped]) -> None:
    """Raise InputError unless there are training images of at least two classes."""
    if not images:
        raise InputError(
            f"There are no images to train on in {display_name(place)}; {list_skipped(place, skipped)}.",
            hint="open one of them in an image viewer",
        )
    classes = {image.label for image in images}
    if len(classes) > 1:
        return
    found = classes.pop()
    empty = [name for name in layout.named_classes if name != found]
    inner = _folders_within(place / found)
    if empty:
        hint = f"these classes have no usable images: {', '.join(empty[:_MAX_LISTED])}"
    elif len(inner) > 1:
        hint = f"if its folders are the classes ({', '.join(inner[:_MAX_LISTED])}), give {display_name(place / found)}"
    else:
        hint = f"a classifier needs at least two classes: one {'label' if os.path.isfile(place) else 'folder'} for each"
    unusable = (
        f"; {list_skipped(place, skipped)}" if skipped else ""
    )  # these may have been the files of the other classes
    raise InputError(f"{display_name(place)} has images of one class only: {found!r}{unusable}.", hint=hint)


def _folders_within(place: Path) -> list[str]:
    """The names of the folders in a folder, for a hint; none where it cannot be entered."""
    try:
        return [display_name(folder.name) for folder in folders_in(place)] if os.path.isdir(place) else []
    except OSError:
        return []


def find_warnings(
    layout: Layout, splits: dict[str, list[ImageFile]], conflicts: Sequence[Sequence[ImageFile]], settings: Settings
) -> list[str]:
    """Warnings about a data set, one sentence each, the most serious first."""
    warnings = []
    counts = {name: Counter(image.label for image in images) for name, images in splits.items()}
    present = sorted({label for count in counts.values() for label in count})
    if empty := [name for name in layout.named_classes if name not in present]:
        warnings.append(f"{_classes(empty)} without a usable image, left out.")
    for name in splits:
        if missing := [label for label in present if not counts[name][label]]:
            warnings.append(f"{_classes(missing)} without an image in {name}.")
    if conflicts:
        named = ", ".join(
            " = ".join(f"{one.label}/{display_name(one.path.name)}" for one in copies) for copies in conflicts[:3]
        )
        more = f" and {len(conflicts) - 3} more" if len(conflicts) > 3 else ""
        warnings.append(f"identical images in different classes, all used for training: {named}{more}.")
    warnings += _find_leaks(splits)
    if settings.cache:
        warnings += _check_cache_size(settings, len({image.digest for split in splits.values() for image in split}))
    return warnings


def _find_leaks(splits: dict[str, list[ImageFile]]) -> list[str]:
    """Warnings about images of validation and test that are also trained on, where the folders gave the split."""
    trained = {image.digest for image in splits.get("train", [])}
    warnings = []
    for name in ("validation", "test"):
        both = sum(image.digest in trained for image in splits.get(name, []))
        if both:
            said = f"{both} of the {len(splits[name])} {name} images are also in train"
            warnings.append(f"{said}: its results will look better than they are.")
    return warnings


def _check_cache_size(settings: Settings, num_images: int) -> list[str]:
    """A warning where the cache cannot hold all images."""
    fits = settings.cache_limit_bytes // settings.image_bytes
    if settings.cache == "disk" and cache_folder() is None:
        return ["FITROOM_NO_CACHE is set: decoded images are not cached on disk."]
    if fits >= num_images:
        return []
    return [
        f"the cache of {format_bytes(settings.cache_limit_bytes)} holds {fits:,} of {num_images:,} images "
        f"({format_bytes(num_images * settings.image_bytes)}); the rest are decoded in every epoch."
    ]


def _classes(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MAX_LISTED} more" if len(names) > _MAX_LISTED else ""
    return f"{'class' if len(names) == 1 else 'classes'} {', '.join(names[:_MAX_LISTED])}{more}"
