"""An estimate, a plan or a watch as a file to look at: a figure or a page, as the file's name asks."""

import importlib.util
import secrets
from collections.abc import Callable, Sequence
from pathlib import Path

from fitroom.errors import InputError, MissingExtraError
from fitroom.memory.estimate import Estimate
from fitroom.planning.result import Plan
from fitroom.report.estimate.figure import ALONE, draw_estimate
from fitroom.report.estimate.page import render_estimate_page
from fitroom.report.plan.figure import draw_plan
from fitroom.report.plan.page import render_plan_page
from fitroom.report.shared.canvas import FileFormat
from fitroom.report.watch.figure import draw_watch
from fitroom.report.watch.page import render_watch_page
from fitroom.watching.summary import Reading, WatchSummary

_SUFFIXES = (".svg", ".png", ".html")


def save_estimate(estimate: Estimate, path: Path) -> None:
    """Write memory over the step as a figure (`.svg`, `.png`) or a self-contained page (`.html`)."""
    _save(
        path,
        render=lambda: render_estimate_page(estimate),
        draw=lambda file_format: draw_estimate(estimate, ALONE, file_format),
    )


def save_plan(plan: Plan, path: Path) -> None:
    """Write the alternatives of a plan as a figure (`.svg`, `.png`) or a self-contained page (`.html`)."""
    _save(path, render=lambda: render_plan_page(plan), draw=lambda file_format: draw_plan(plan, file_format))


def save_watch(summary: WatchSummary, readings: Sequence[Reading], path: Path) -> None:
    """Write the readings of a watch as a figure (`.svg`, `.png`) or a self-contained page (`.html`)."""
    _save(
        path,
        render=lambda: render_watch_page(summary, readings),
        draw=lambda file_format: draw_watch(summary, readings, file_format),
    )


def check_place(path: Path) -> None:
    """Raise for a path at which no plot can be saved: by its ending, its folder, or a package that is missing."""
    if path.suffix.lower() not in _SUFFIXES:
        raise InputError(
            f"A plot must be saved as .svg, .png or .html. Received: {str(path)!r}.",
            hint=f"try {path.with_suffix('.svg').name!r}" if path.name else None,
        )
    if not path.parent.is_dir():
        raise InputError(
            f"A plot must be saved in a folder that is there. Received: {str(path)!r}.",
            hint=f"make the folder {str(path.parent)!r} first, or choose another",
        )
    if path.suffix.lower() != ".html" and importlib.util.find_spec("matplotlib") is None:
        raise MissingExtraError("Drawing a plot", package="matplotlib", extra="plot")


def _save(path: Path, *, render: Callable[[], str], draw: Callable[[FileFormat], bytes]) -> None:
    """Write what the end of the file's name asks for.

    The file appears whole or not at all; an older one of that name is replaced.
    """
    check_place(path)
    suffix = path.suffix.lower()
    _write_whole(
        render().encode("utf-8", "backslashreplace")
        if suffix == ".html"
        else draw("svg" if suffix == ".svg" else "png"),
        path,
    )


def _write_whole(content: bytes, path: Path) -> None:
    """Write beside and rename, so that nobody ever reads half a file."""
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
