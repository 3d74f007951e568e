"""What a look at all pictures brought to light: reasons to stop, and what a user should know."""

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from fitroom.data.layout import Layout
from fitroom.data.settings import Settings
from fitroom.data.skipped import Skipped, listed
from fitroom.data.split import Picture
from fitroom.data.walk import folders_in, shown
from fitroom.environment import cache_folder
from fitroom.errors import InputError
from fitroom.units import format_bytes

_SHOWN = 5


def not_strict(place: Path, skipped: Sequence[Skipped]) -> InputError:
    """The error of a strict scan, naming the bad files."""
    return InputError(
        f"In {shown(place)} {listed(place, skipped)}.",
        hint="remove or repair them, or leave `strict` out to train on the rest",
    )


def check_classes(place: Path, layout: Layout, pictures: Sequence[Picture], skipped: Sequence[Skipped]) -> None:
    """Raise InputError where the training pictures leave nothing to tell apart."""
    if not pictures:
        raise InputError(
            f"There are no pictures to train on in {shown(place)}; {listed(place, skipped)}.",
            hint="look at one of them with a viewer of pictures",
        )
    classes = {picture.label for picture in pictures}
    if len(classes) > 1:
        return
    found = classes.pop()
    empty = [name for name in layout.named_classes if name != found]
    inner = _folders_within(place / found)
    if empty:
        hint = f"these have no pictures that can be used: {', '.join(empty[:_SHOWN])}"
    elif len(inner) > 1:
        hint = f"if its folders are the classes ({', '.join(inner[:_SHOWN])}), give {shown(place / found)}"
    else:
        hint = f"a classifier needs two classes at least: one {'label' if os.path.isfile(place) else 'folder'} for each"
    unusable = f"; {listed(place, skipped)}" if skipped else ""  # the other classes may have been theirs
    raise InputError(f"{shown(place)} has pictures of one class only: {found!r}{unusable}.", hint=hint)


def _folders_within(place: Path) -> list[str]:
    """Names, for a hint; none where it cannot be entered."""
    try:
        return [shown(folder.name) for folder in folders_in(place)] if os.path.isdir(place) else []
    except OSError:
        return []


def warnings_of(
    layout: Layout, splits: dict[str, list[Picture]], conflicts: Sequence[Sequence[Picture]], settings: Settings
) -> list[str]:
    """Sentences, the gravest first."""
    told = []
    counts = {name: Counter(picture.label for picture in pictures) for name, pictures in splits.items()}
    present = sorted({label for count in counts.values() for label in count})
    if empty := [name for name in layout.named_classes if name not in present]:
        told.append(f"{_classes(empty)} without a picture that can be used, left out.")
    for name in splits:
        if missing := [label for label in present if not counts[name][label]]:
            told.append(f"{_classes(missing)} without a picture in {name}.")
    if conflicts:
        named = ", ".join(
            " = ".join(f"{one.label}/{shown(one.path.name)}" for one in copies) for copies in conflicts[:3]
        )
        more = f" and {len(conflicts) - 3} more" if len(conflicts) > 3 else ""
        told.append(f"identical pictures in different classes, all of them trained on: {named}{more}.")
    told += _both_sides(splits)
    if settings.cache:
        told += _too_small(settings, len({picture.digest for split in splits.values() for picture in split}))
    return told


def _both_sides(splits: dict[str, list[Picture]]) -> list[str]:
    """Of a split that came with the folders: whether pictures of validation and test were trained on."""
    trained = {picture.digest for picture in splits.get("train", [])}
    told = []
    for name in ("validation", "test"):
        both = sum(picture.digest in trained for picture in splits.get(name, []))
        if both:
            said = f"{both} of the {len(splits[name])} pictures of {name} are in train too"
            told.append(f"{said}: results look better than they are.")
    return told


def _too_small(settings: Settings, num_pictures: int) -> list[str]:
    fits = settings.cache_limit_bytes // settings.picture_bytes
    if settings.cache == "disk" and cache_folder() is None:
        return ["FITROOM_NO_CACHE is set: pictures are not kept on disk."]
    if fits >= num_pictures:
        return []
    return [
        f"the cache of {format_bytes(settings.cache_limit_bytes)} holds {fits:,} of {num_pictures:,} pictures "
        f"({format_bytes(num_pictures * settings.picture_bytes)}); the rest are decoded each time."
    ]


def _classes(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"{'class' if len(names) == 1 else 'classes'} {', '.join(names[:_SHOWN])}{more}"
