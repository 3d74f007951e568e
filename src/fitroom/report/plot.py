"""An estimate as a file to look at: a picture or a page."""

import secrets
from collections.abc import Callable
from pathlib import Path

from fitroom.errors import InputError
from fitroom.memory.estimate import Estimate
from fitroom.report.canvas import FileFormat
from fitroom.report.figure import ALONE, draw
from fitroom.report.page import page

_SUFFIXES = (".svg", ".png", ".html")


def save_plot(estimate: Estimate, path: Path) -> None:
    """Write memory over the step as a picture (`.svg`, `.png`) or a self-contained page (`.html`)."""
    save_to_look_at(path, page=lambda: page(estimate), picture=lambda kind: draw(estimate, ALONE, kind))


def save_to_look_at(path: Path, *, page: Callable[[], str], picture: Callable[[FileFormat], bytes]) -> None:
    """Write what the end of the file's name asks for.

    The file appears whole or not at all; an older one of that name is replaced.
    """
    suffix = path.suffix.lower()
    if suffix not in _SUFFIXES:
        raise InputError(
            f"A plot must be saved as .svg, .png or .html. Received: {str(path)!r}.",
            hint=f"try {path.with_suffix('.svg').name!r}" if path.name else None,
        )
    if not path.parent.is_dir():
        raise InputError(
            f"A plot must be saved in a folder that is there. Received: {str(path)!r}.",
            hint=f"make the folder {str(path.parent)!r} first, or choose another",
        )
    _write(
        page().encode("utf-8", "backslashreplace")
        if suffix == ".html"
        else picture("svg" if suffix == ".svg" else "png"),
        path,
    )


def _write(content: bytes, path: Path) -> None:
    """Beside and then renamed, so that nobody ever reads half a file."""
    beside = path.with_name(f".{secrets.token_hex(8)}.part")
    try:
        beside.write_bytes(content)
        beside.replace(path)
    except OSError as error:
        raise InputError(
            f"The plot could not be written: {error.strerror or error}. Received: {str(path)!r}.",
            hint="choose a place where you may write, with room on the disk",
        ) from error
    finally:
        # Still there only where it failed.
        beside.unlink(missing_ok=True)
