"""Which files of which class a folder or a CSV file names, before any of them is opened."""

import csv
import io
import os
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from fitroom.data.files import Skipped, display_name, files_below, files_in, folders_in, list_skipped
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
"""Names of folders that hold a split, and the split."""

IMAGE_SUFFIXES = {".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff", ".avif", ".heic", ".jp2"}


@dataclass(frozen=True)
class Candidate:
    """A file that may be an image."""

    path: Path
    label: str
    split: str | None = None
    """"train", "validation" or "test"; None where the layout does not say."""


@dataclass(kw_only=True)
class Layout:
    """The files of a folder or CSV file with their classes and splits."""

    words: str
    """The layout in words: "a folder per class"."""

    candidates: list[Candidate]
    named_classes: list[str]
    """Every class that the layout names, with or without images."""

    skipped: list[Skipped] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def find_layout(place: Path) -> Layout:
    """Find the candidates in a folder or a CSV file. Raises InputError where there are none."""
    if os.path.isdir(place):
        found = _read_split_folders(place) or _read_class_folders(place)
    elif os.path.isfile(place):
        rows, skipped = read_table(place)
        candidates = [Candidate(path, label) for path, label in rows]
        found = Layout(words="a CSV file", candidates=candidates, named_classes=_names(candidates), skipped=skipped)
    else:
        raise InputError(
            f"There is no folder or CSV file {display_name(place)}.",
            hint="give a folder with one folder per class in it",
        )
    if not found.candidates:
        raise _no_images(place, found)
    return found


def _read_split_folders(place: Path) -> Layout | None:
    """The layout of `train/ val/ test/` above the classes; None where there is no such split, or `train` is a class."""
    try:
        folders = folders_in(place)
    except OSError:
        return None
    splits = {folder: SPLITS[folder.name.lower()] for folder in folders if folder.name.lower() in SPLITS}
    kinds = Counter(splits.values())
    others = [display_name(folder.name) for folder in folders if folder not in splits]
    if not kinds["train"] or (others and len(kinds) == 1):
        return None
    if not any(folders_in(folder) for folder, split in splits.items() if split == "train"):
        return None
    twice = [split for split, count in kinds.items() if count > 1]
    if twice:
        names = ", ".join(display_name(folder.name) for folder, split in splits.items() if split == twice[0])
        raise InputError(
            f"{display_name(place)} has two folders of {twice[0]} images: {names}.", hint="keep one of them"
        )
    parts = {split: _read_class_folders(folder, split) for folder, split in splits.items()}
    found = Layout(
        words=f"{', '.join(f'{display_name(folder.name)}/' for folder in splits)} with a folder per class each",
        candidates=[candidate for part in parts.values() for candidate in part.candidates],
        named_classes=sorted({name for part in parts.values() for name in part.named_classes}),
        skipped=[skipped for part in parts.values() for skipped in part.skipped],
    )
    if others:
        found.warnings.append(f"ignored, because they are no folders of a split: {', '.join(others)}.")
    return found


def _read_class_folders(place: Path, split: str | None = None) -> Layout:
    """The layout of one folder per class."""
    candidates, names = [], []
    try:
        folders, files = folders_in(place), files_in(place)
    except OSError as error:
        reason = f"a folder that cannot be entered: {(error.strerror or str(error)).lower()}"
        return Layout(words="a folder", candidates=[], named_classes=[], skipped=[Skipped(place, reason)])
    for folder in folders:
        label = display_name(folder.name)
        names.append(label)
        candidates += [Candidate(path, label, split) for path in files_below(folder)]
    loose = [path for path in files if path.suffix.lower() in IMAGE_SUFFIXES]
    return Layout(
        words="a folder per class",
        candidates=candidates,
        named_classes=sorted(set(names)),
        skipped=[Skipped(path, "not in a class folder") for path in loose],
    )


def _names(candidates: list[Candidate]) -> list[str]:
    return sorted({candidate.label for candidate in candidates})


def _no_images(place: Path, found: Layout) -> InputError:
    if found.skipped:
        said = list_skipped(place, found.skipped)
    elif found.named_classes:
        said = f"folders without files: {', '.join(found.named_classes[:5])}"
    else:
        said = "nothing"
    return InputError(
        f"There are no images to train on in {display_name(place)}. Found: {said}.",
        hint="put the images of each class into a folder named after it, or give a CSV file of path,label",
    )


_PATH_COLUMNS = {"path", "file", "filename", "file_name", "filepath", "file_path", "image", "picture", "image_path"}
_LABEL_COLUMNS = {"label", "class", "category", "target", "class_name", "label_name"}


def read_table(file: Path) -> tuple[list[tuple[Path, str]], list[Skipped]]:
    """Read (path, label) of every row of a CSV file whose image exists; files that do not exist are skipped.

    Paths are relative to the CSV file. A header row is recognised, and with one there may be other columns.
    """
    rows = _rows(file)
    if not rows:
        raise InputError(f"{display_name(file)} is empty.", hint="expected: one line per image, path,label")
    columns = _header(rows[0][1])
    if columns is not None:
        rows = rows[1:]
    lines: dict[Path, tuple[int, str]] = {}
    missing: list[Skipped] = []
    for number, cells in rows:
        path, label = _cells(file, number, cells, columns)
        if path in lines and lines[path][1] != label:
            first, before = lines[path]
            raise InputError(
                f"{display_name(file)}, line {number}: {display_name(cells[0])} is {label!r} here, "
                f"and {before!r} on line {first}.",
                hint="an image has one label",
            )
        if path in lines:
            continue
        lines[path] = (number, label)
        if not os.path.exists(path):
            missing.append(Skipped(path, f"no such file (line {number} of {display_name(file.name)})"))
    gone = {one.file for one in missing}
    return [(path, label) for path, (_, label) in lines.items() if path not in gone], missing


def _rows(file: Path) -> list[tuple[int, list[str]]]:
    try:
        text = file.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise InputError(
            f"{display_name(file)} cannot be read: {(error.strerror or str(error)).lower()}.",
            hint="check its permissions",
        ) from None
    except UnicodeDecodeError as error:
        line = file.read_bytes()[: error.start].count(b"\n") + 1
        raise InputError(
            f"{display_name(file)}, line {line}: not UTF-8 text.", hint="save the CSV file with the encoding UTF-8"
        ) from None
    first = text.partition("\n")[0]
    delimiter = max(",;\t", key=first.count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    rows = []
    try:
        for cells in reader:
            cells = [cell.strip() for cell in cells]
            if any(cells):
                rows.append((reader.line_num, cells))
    except csv.Error as error:
        raise InputError(
            f"{display_name(file)}, line {reader.line_num}: {error}.", hint="expected: one line per image, path,label"
        ) from None
    return rows


def _header(cells: list[str]) -> tuple[int, int] | None:
    """The columns of path and label, if the first row names them; else None."""
    words = [cell.lower().replace(" ", "_") for cell in cells]
    paths = [number for number, word in enumerate(words) if word in _PATH_COLUMNS]
    labels = [number for number, word in enumerate(words) if word in _LABEL_COLUMNS]
    return (paths[0], labels[0]) if paths and labels else None


def _cells(file: Path, number: int, cells: list[str], columns: tuple[int, int] | None) -> tuple[Path, str]:
    if columns is None and len(cells) != 2:
        raise InputError(
            f"{display_name(file)}, line {number}: expected two columns, path,label; there are {len(cells)}. "
            f"Received: {','.join(cells)[:80]!r}.",
            hint="give two columns, or a header line that names them: path,label",
        )
    at_path, at_label = columns or (0, 1)
    name, label = (cells[at] if at < len(cells) else "" for at in (at_path, at_label))
    if not name or not label:
        raise InputError(f"{display_name(file)}, line {number}: the {'label' if name else 'path'} is missing.")
    path = file.parent / name
    if "\\" in name and not os.path.exists(path):  # written on Windows
        path = file.parent / name.replace("\\", "/")
    return path, display_name(label)
