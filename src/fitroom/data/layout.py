"""Which pictures of which class a folder or a table holds, before any of them is opened."""

import os
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from fitroom.data.skipped import Skipped, listed
from fitroom.data.table import read_table
from fitroom.data.walk import files_below, files_in, folders_in, shown
from fitroom.errors import InputError

SPLITS = {
    "train": "train",
    "training": "train",
    "val": "validation",
    "valid": "validation",
    "validation": "validation",
    "test": "test",
    "testing": "test",
}
"""What folders of a split are called, and what they are."""

PICTURE_SUFFIXES = {".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff", ".avif", ".heic", ".jp2"}


@dataclass(frozen=True)
class Candidate:
    """A file that may be a picture."""

    path: Path
    label: str
    split: str | None = None
    """Where the layout says so: "train", "validation" or "test"."""


@dataclass(kw_only=True)
class Layout:
    """What was found."""

    words: str
    """The layout in words: "a folder per class"."""

    candidates: list[Candidate]
    named_classes: list[str]
    """Every class that has a name, with or without pictures."""

    skipped: list[Skipped] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def layout_of(place: Path) -> Layout:
    """The candidates in a folder or a CSV file. Raises InputError where there is no such thing."""
    if os.path.isdir(place):
        found = _split_folders(place) or _class_folders(place)
    elif os.path.isfile(place):
        rows, skipped = read_table(place)
        candidates = [Candidate(path, label) for path, label in rows]
        found = Layout(words="a CSV file", candidates=candidates, named_classes=_names(candidates), skipped=skipped)
    else:
        raise InputError(
            f"There is no folder or CSV file {shown(place)}.", hint="give a folder with one folder per class in it"
        )
    if not found.candidates:
        raise _no_pictures(place, found)
    return found


def _split_folders(place: Path) -> Layout | None:
    """`train/` and others above the classes. A class that is called train is not one of them."""
    try:
        folders = folders_in(place)
    except OSError:
        return None
    splits = {folder: SPLITS[folder.name.lower()] for folder in folders if folder.name.lower() in SPLITS}
    kinds = Counter(splits.values())
    others = [shown(folder.name) for folder in folders if folder not in splits]
    if not kinds["train"] or (others and len(kinds) == 1):
        return None
    if not any(folders_in(folder) for folder, split in splits.items() if split == "train"):
        return None
    twice = [split for split, count in kinds.items() if count > 1]
    if twice:
        names = ", ".join(shown(folder.name) for folder, split in splits.items() if split == twice[0])
        raise InputError(f"{shown(place)} has two folders of {twice[0]} pictures: {names}.", hint="keep one of them")
    parts = {split: _class_folders(folder, split) for folder, split in splits.items()}
    found = Layout(
        words=f"{', '.join(f'{shown(folder.name)}/' for folder in splits)} with a folder per class each",
        candidates=[candidate for part in parts.values() for candidate in part.candidates],
        named_classes=sorted({name for part in parts.values() for name in part.named_classes}),
        skipped=[skipped for part in parts.values() for skipped in part.skipped],
    )
    if others:
        found.warnings.append(f"beside the folders of the split, these were left out: {', '.join(others)}.")
    return found


def _class_folders(place: Path, split: str | None = None) -> Layout:
    candidates, names = [], []
    try:
        folders, files = folders_in(place), files_in(place)
    except OSError as error:
        reason = f"a folder that cannot be entered: {(error.strerror or str(error)).lower()}"
        return Layout(words="a folder", candidates=[], named_classes=[], skipped=[Skipped(place, reason)])
    for folder in folders:
        label = shown(folder.name)
        names.append(label)
        candidates += [Candidate(path, label, split) for path in files_below(folder)]
    loose = [path for path in files if path.suffix.lower() in PICTURE_SUFFIXES]
    return Layout(
        words="a folder per class",
        candidates=candidates,
        named_classes=sorted(set(names)),
        skipped=[Skipped(path, "not in the folder of a class") for path in loose],
    )


def _names(candidates: list[Candidate]) -> list[str]:
    return sorted({candidate.label for candidate in candidates})


def _no_pictures(place: Path, found: Layout) -> InputError:
    if found.skipped:
        said = listed(place, found.skipped)
    elif found.named_classes:
        said = f"folders without files: {', '.join(found.named_classes[:5])}"
    else:
        said = "nothing"
    return InputError(
        f"There are no pictures to train on in {shown(place)}. Found: {said}.",
        hint="put the pictures of each class into a folder named after it, or give a CSV file of path,label",
    )
