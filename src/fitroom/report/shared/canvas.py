"""What figures are drawn on with matplotlib, and how they become the bytes of a file.

Figures are made as objects and matplotlib's `pyplot` is never imported, so a user's own plots, backend and
windows are left alone.
"""

import io
import re
from collections.abc import Callable
from typing import Any, Literal

from fitroom.errors import MissingExtraError
from fitroom.report.shared.palette import PAPER

FileFormat = Literal["svg", "png"]

_UNITS = ((1024**3, "GiB"), (1024**2, "MiB"), (1024, "KiB"), (1, "bytes"))


def paint_figure(paint: Callable[[Any], None], file_format: FileFormat, *, width: float, height: float) -> bytes:
    """Return what `paint` draws on a figure of that many inches as the bytes of a file; the same bytes every time."""
    try:
        from matplotlib import style
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError("Drawing a plot", package="matplotlib", extra="plot") from error

    settings = {
        "svg.fonttype": "none",  # text stays text: it can be searched and read aloud
        "svg.hashsalt": f"fitroom {width}",
        "font.sans-serif": ["DejaVu Sans", "Verdana", "Arial"],
        "font.size": 9.0,
    }
    # A style is the only way to some of these, and it keeps the user's own styles out.
    with style.context(["default", settings]):
        figure = Figure(figsize=(width, height), facecolor=PAPER)
        paint(figure)
        file = io.BytesIO()
        metadata = {"Date": None, "Creator": "fitroom"} if file_format == "svg" else {"Software": "fitroom"}
        figure.savefig(file, format=file_format, dpi=160, metadata=metadata)
    return _compact(file.getvalue()) if file_format == "svg" else file.getvalue()


def make_size_ticks(end_bytes: float, of_bytes: int) -> tuple[list[float], list[str], str]:
    """Find round places on an axis up to `end_bytes`, what to write there, and the unit, one that suits `of_bytes`."""
    from matplotlib.ticker import MaxNLocator

    factor, unit = next(row for row in _UNITS if of_bytes >= row[0])
    end = end_bytes / factor
    ticks = [tick for tick in MaxNLocator(7, steps=[1, 2, 2.5, 5, 10]).tick_values(0, end) if 0 <= tick <= end]
    return [tick * factor for tick in ticks], [f"{tick:g}" for tick in ticks], unit


def _compact(svg: bytes) -> bytes:
    """Write the same figure in half the bytes: a hundredth of a point is finer than any screen."""

    def shorten(path: re.Match[str]) -> str:
        rounded = re.sub(r"(\.\d\d)\d+", r"\1", path[1])
        return f'd="{" ".join(rounded.split())}"'

    return re.sub(r'\bd="([^"]*)"', shorten, svg.decode()).encode()
