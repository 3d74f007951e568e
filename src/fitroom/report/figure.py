"""A picture of a step's memory, as the bytes of an SVG or PNG file."""

from dataclasses import dataclass
from typing import Any

from fitroom.memory.estimate import Estimate
from fitroom.report import marks, words
from fitroom.report.canvas import FileFormat, painted
from fitroom.report.columns import columns, phase_bands
from fitroom.report.palette import ALARM, INK
from fitroom.units import format_bytes

_HEADROOM = 1.3
"""How much higher than what is drawn the axis reaches: room for the names of the peak and the limit."""

_FAR_LIMIT = 2
"""From how many times the peak on the limit is named, not drawn: the picture would be mostly empty."""


@dataclass(frozen=True, kw_only=True)
class Layout:
    """The size of a picture and the margins around its plot, in inches."""

    width: float
    height: float
    left: float = 0.62
    right: float = 0.2
    top: float = 0.34
    bottom: float = 0.56
    explains_itself: bool = False
    """Whether it carries title and legend; on a page they stand beside it."""

    name_width: int = 48
    """The most characters of a layer's path."""

    before_place: str = " at "
    """What stands between the peak's size and its place: a new line where the picture is narrow."""

    @property
    def area(self) -> dict[str, float]:
        """The plot itself, as fractions of the picture from its lower left."""
        return {
            "left": self.left / self.width,
            "right": 1 - self.right / self.width,
            "bottom": self.bottom / self.height,
            "top": 1 - self.top / self.height,
        }


ALONE = Layout(width=10.4, height=5.4, right=1.75, top=1.15, explains_itself=True)
WIDE = Layout(width=9.2, height=4.2)
NARROW = Layout(width=4.2, height=3.8, name_width=26, before_place="\n")


def draw(estimate: Estimate, layout: Layout, file_format: FileFormat) -> bytes:
    """The picture as the bytes of a file; the same estimate always gives the same bytes."""

    def paint(figure: Any) -> None:
        figure.subplots_adjust(**layout.area)
        _draw_step(figure.add_subplot(facecolor="none"), estimate, layout)
        if layout.explains_itself:
            _draw_title(figure, estimate, layout)

    return painted(paint, file_format, width=layout.width, height=layout.height)


def _draw_step(axes: Any, estimate: Estimate, layout: Layout) -> None:
    timeline, limit_bytes = estimate.timeline, estimate.limit_bytes
    num_moments = len(timeline.moments)
    limit_is_near = limit_bytes <= _FAR_LIMIT * timeline.peak_bytes
    height_bytes = max(timeline.peak_bytes, limit_bytes if limit_is_near else 1)
    cut = columns(timeline)
    column = cut.shown.index(timeline.peak_moment)
    peak_at = (cut.edges[column] + cut.edges[column + 1]) / 2
    place = words.peak_place(estimate, width=layout.name_width)
    name = f"peak {format_bytes(timeline.peak_bytes)}{layout.before_place}{place}"

    axes.set_xlim(0, num_moments)
    axes.set_ylim(0, _HEADROOM * height_bytes)
    marks.frame(axes, num_moments, height_bytes)
    marks.kinds(axes, cut)
    marks.phases(axes, phase_bands(timeline))
    marks.peak(axes, peak_at / num_moments, timeline.peak_bytes, name, limit_bytes)
    at_right = peak_at < num_moments / 2
    marks.limit(axes, limit_bytes, fits=estimate.fits, is_drawn=limit_is_near, at_right=at_right)
    if layout.explains_itself and cut.bytes_of:
        marks.legend(axes, cut, estimate.by_kind)


def _draw_title(figure: Any, estimate: Estimate, layout: Layout) -> None:
    left = 0.2 / layout.width
    title = words.shorten_middle(words.headline(estimate), 80)
    figure.text(left, 1 - 0.34 / layout.height, title, fontsize=13, weight="bold", color=INK, parse_math=False)
    colour = INK if estimate.fits else ALARM
    figure.text(left, 1 - 0.6 / layout.height, words.verdict(estimate), fontsize=10.5, color=colour)
