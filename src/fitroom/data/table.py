"""A CSV file of path,label."""

import csv
import io
import os
from pathlib import Path

from fitroom.data.skipped import Skipped
from fitroom.data.walk import shown
from fitroom.errors import InputError

_PATH_WORDS = {"path", "file", "filename", "file_name", "filepath", "file_path", "image", "picture", "image_path"}
_LABEL_WORDS = {"label", "class", "category", "target", "class_name", "label_name"}


def read_table(file: Path) -> tuple[list[tuple[Path, str]], list[Skipped]]:
    """(path, label) of every row whose file is there, and the others.

    Paths are relative to the CSV file. A first row of names is recognised; with one there may be other columns.
    """
    rows = _rows(file)
    if not rows:
        raise InputError(f"{shown(file)} is empty.", hint="one line a picture: path,label")
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
                f"{shown(file)}, line {number}: {shown(cells[0])} is {label!r} here and {before!r} on line {first}.",
                hint="a picture has one label",
            )
        if path in lines:
            continue
        lines[path] = (number, label)
        if not os.path.exists(path):
            missing.append(Skipped(path, f"no such file (line {number} of {shown(file.name)})"))
    gone = {one.file for one in missing}
    return [(path, label) for path, (_, label) in lines.items() if path not in gone], missing


def _rows(file: Path) -> list[tuple[int, list[str]]]:
    try:
        text = file.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise InputError(
            f"{shown(file)} cannot be read: {(error.strerror or str(error)).lower()}.", hint="look at its permissions"
        ) from None
    except UnicodeDecodeError as error:
        line = file.read_bytes()[: error.start].count(b"\n") + 1
        raise InputError(
            f"{shown(file)}, line {line}: not UTF-8 text.", hint="save the CSV file with the encoding UTF-8"
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
            f"{shown(file)}, line {reader.line_num}: {error}.", hint="one line a picture: path,label"
        ) from None
    return rows


def _header(cells: list[str]) -> tuple[int, int] | None:
    """Where path and label stand, if the first row names its columns."""
    words = [cell.lower().replace(" ", "_") for cell in cells]
    paths = [number for number, word in enumerate(words) if word in _PATH_WORDS]
    labels = [number for number, word in enumerate(words) if word in _LABEL_WORDS]
    return (paths[0], labels[0]) if paths and labels else None


def _cells(file: Path, number: int, cells: list[str], columns: tuple[int, int] | None) -> tuple[Path, str]:
    if columns is None and len(cells) != 2:
        raise InputError(
            f"{shown(file)}, line {number}: path,label are expected; the number of columns is {len(cells)}. "
            f"Received: {','.join(cells)[:80]!r}.",
            hint="two columns, or a first line that names them: path,label",
        )
    at_path, at_label = columns or (0, 1)
    name, label = (cells[at] if at < len(cells) else "" for at in (at_path, at_label))
    if not name or not label:
        raise InputError(f"{shown(file)}, line {number}: the {'label' if name else 'path'} is missing.")
    path = file.parent / name
    if "\\" in name and not os.path.exists(path):  # written on Windows
        path = file.parent / name.replace("\\", "/")
    return path, shown(label)
