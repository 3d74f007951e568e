"""The figure of a step's memory, as the bytes of an SVG or PNG file.

Areas by kind, the phases as a ribbon above them, the peak, the limit, and a legend where the figure stands alone.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fitroom.memory.estimate import Estimate
from fitroom.memory.timeline import PHASES, Kind
from fitroom.report.estimate import words
from fitroom.report.estimate.columns import Columns, PhaseBand, cut_columns, find_phase_bands
from fitroom.report.shared.canvas import FileFormat, make_size_ticks, paint_figure
from fitroom.report.shared.palette import ALARM, INK, KIND_COLOURS, LINE, MUTED, PAPER, PHASE_COLOURS
from fitroom.report.shared.words import shorten_middle
from fitroom.units import format_bytes

_HEADROOM = 1.3
"""How much higher than what is drawn the axis reaches: room for the names of the peak and the limit."""

_FAR_LIMIT = 2
"""From how many times the peak on the limit is named, not drawn: the figure would be mostly empty."""

_POINTS_PER_CHARACTER = 6.2
"""Of bold text at 9 points, a little more than it takes."""

_NAME_IN_HEADROOM = 0.88
_BEHIND_TEXT = {"facecolor": PAPER, "alpha": 0.85, "linewidth": 0, "pad": 0.5}


@dataclass(frozen=True, kw_only=True)
class Layout:
    """The size of a figure and the margins around its plot, in inches."""

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
    """What stands between the peak's size and its place: a new line where the figure is narrow."""

    @property
    def area(self) -> dict[str, float]:
        """The plot itself, as fractions of the figure from its lower left."""
        return {
            "left": self.left / self.width,
            "right": 1 - self.right / self.width,
            "bottom": self.bottom / self.height,
            "top": 1 - self.top / self.height,
        }


ALONE = Layout(width=10.4, height=5.4, right=1.75, top=1.15, explains_itself=True)
WIDE = Layout(width=9.2, height=4.2)
NARROW = Layout(width=4.2, height=3.8, name_width=26, before_place="\n")


def draw_estimate(estimate: Estimate, layout: Layout, file_format: FileFormat) -> bytes:
    """Draw the figure as the bytes of a file; the same estimate always gives the same bytes."""

    def paint(figure: Any) -> None:
        figure.subplots_adjust(**layout.area)
        _draw_step(figure.add_subplot(facecolor="none"), estimate, layout)
        if layout.explains_itself:
            _draw_title(figure, estimate, layout)

    return paint_figure(paint, file_format, width=layout.width, height=layout.height)


def _draw_step(axes: Any, estimate: Estimate, layout: Layout) -> None:
    timeline, limit_bytes = estimate.timeline, estimate.limit_bytes
    num_moments = len(timeline.moments)
    limit_is_near = limit_bytes <= _FAR_LIMIT * timeline.peak_bytes
    height_bytes = max(timeline.peak_bytes, limit_bytes if limit_is_near else 1)
    cut = cut_columns(timeline)
    column = cut.shown.index(timeline.peak_moment)
    peak_at = (cut.edges[column] + cut.edges[column + 1]) / 2
    place = words.format_peak_place(estimate, width=layout.name_width)
    name = f"peak {format_bytes(timeline.peak_bytes)}{layout.before_place}{place}"

    axes.set_xlim(0, num_moments)
    axes.set_ylim(0, _HEADROOM * height_bytes)
    _draw_frame(axes, num_moments, height_bytes)
    _draw_kinds(axes, cut)
    _draw_phases(axes, find_phase_bands(timeline))
    _draw_peak(axes, peak_at / num_moments, timeline.peak_bytes, name, limit_bytes)
    at_right = peak_at < num_moments / 2
    _draw_limit(axes, limit_bytes, fits=estimate.fits, is_drawn=limit_is_near, at_right=at_right)
    if layout.explains_itself and cut.bytes_of:
        _draw_legend(axes, cut, estimate.by_kind)


def _draw_title(figure: Any, estimate: Estimate, layout: Layout) -> None:
    left = 0.2 / layout.width
    title = shorten_middle(words.format_headline(estimate), 80)
    figure.text(left, 1 - 0.34 / layout.height, title, fontsize=13, weight="bold", color=INK, parse_math=False)
    colour = INK if estimate.fits else ALARM
    figure.text(left, 1 - 0.6 / layout.height, words.format_verdict(estimate), fontsize=10.5, color=colour)


def _draw_frame(axes: Any, num_moments: int, height_bytes: int) -> None:
    """Set up axes that count in percent of the step and in the unit that suits the height."""
    places, labels, unit = make_size_ticks(axes.get_ylim()[1], height_bytes)
    axes.set_yticks(places, labels)
    axes.set_ylabel(unit, color=MUTED)
    quarters = [quarter / 4 for quarter in range(5)]
    axes.set_xticks([num_moments * part for part in quarters], [f"{100 * part:.0f} %" for part in quarters])
    for label, side in zip(axes.get_xticklabels(), ("left", "center", "center", "center", "right"), strict=True):
        label.set_horizontalalignment(side)
    operations = "operation" if num_moments == 1 else "operations"
    axes.set_xlabel(f"progress through the step's {num_moments:,} {operations}", color=MUTED)
    axes.tick_params(colors=MUTED, length=0, pad=5)
    axes.grid(axis="y", color=LINE, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(MUTED)


def _draw_kinds(axes: Any, cut: Columns) -> None:
    """Draw the stacked areas. Each reaches down to the ground, and the lower ones cover what is below."""
    for kind, outline in reversed(list(_trace_outlines(cut))):
        across, up = zip(*outline, strict=True)
        axes.fill(across, up, color=KIND_COLOURS[kind], linewidth=0, zorder=2, gid=f"kind-{kind}")


def _draw_phases(axes: Any, bands: Sequence[PhaseBand]) -> None:
    """Draw a ribbon along the top; each phase is named once, on its longest band."""
    from matplotlib.patches import Rectangle

    along = axes.get_xaxis_transform()
    for band in bands:
        place = ((band.first, 1.0), band.end - band.first, 0.05)
        colour = PHASE_COLOURS[band.phase]
        axes.add_patch(Rectangle(*place, transform=along, color=colour, linewidth=0, clip_on=False))
    for phase in PHASES:
        of_phase = [band for band in bands if band.phase == phase]
        longest = max(of_phase, key=lambda band: band.end - band.first, default=None)
        if longest and longest.end - longest.first > 0.12 * axes.get_xlim()[1]:
            middle = (longest.first + longest.end) / 2
            axes.text(middle, 1.022, phase, transform=along, ha="center", va="center", color=INK, fontsize=8)


def _draw_peak(axes: Any, across: float, peak_bytes: int, name: str, limit_bytes: int) -> None:
    """Draw a dot on the peak and its name above; `across` is from 0 to 1."""
    top = peak_bytes / axes.get_ylim()[1]
    # Close above the dot, or in the headroom where the limit would run through it.
    gap_to_limit = limit_bytes / axes.get_ylim()[1] - top
    bottom = _NAME_IN_HEADROOM if 0 <= gap_to_limit < 0.2 else top + 0.045
    on_axes: dict[str, Any] = {"transform": axes.transAxes, "color": INK, "clip_on": False}
    axes.plot([across, across], [top, bottom - 0.01], linewidth=0.8, zorder=4, **on_axes)
    axes.plot([across], [top], "o", markersize=6.5, markeredgecolor=PAPER, zorder=5, **on_axes)
    # Centred above the dot, or at the edge of the axes that it would cross.
    width = max(map(len, name.splitlines())) * _POINTS_PER_CHARACTER
    half = width / (axes.bbox.width / axes.figure.dpi * 72) / 2
    anchor, side = (0, "left") if across < half else (1, "right") if across > 1 - half else (across, "center")
    text = axes.text(anchor, bottom, name, ha=side, va="bottom", weight="bold", parse_math=False, **on_axes)
    text.set_bbox(_BEHIND_TEXT)


def _draw_limit(axes: Any, limit_bytes: int, *, fits: bool, is_drawn: bool, at_right: bool) -> None:
    """Draw the allocator's limit: a dashed line, or where that is far above only its name."""
    name = f"allocator limit {format_bytes(limit_bytes)}"
    colour = INK if fits else ALARM
    if is_drawn:
        axes.axhline(limit_bytes, color=colour, linewidth=1.2, linestyle=(0, (5, 3)), zorder=3)
    height = limit_bytes / axes.get_ylim()[1] + 0.012 if is_drawn else 0.94
    axes.text(
        0.99 if at_right else 0.01,
        height,
        name if is_drawn else f"↑ {name}",
        transform=axes.transAxes,
        ha="right" if at_right else "left",
        va="bottom",
        color=colour if is_drawn else MUTED,
        fontsize=8.5,
        zorder=4,
        bbox=_BEHIND_TEXT,
    )


def _draw_legend(axes: Any, cut: Columns, bytes_at_peak: Mapping[Kind, int]) -> None:
    """List every kind that is ever in use, in the order of the stack, with its bytes at the peak."""
    from matplotlib.patches import Patch

    in_use = [kind for kind in reversed(KIND_COLOURS) if kind in cut.bytes_of]
    axes.legend(
        handles=[Patch(color=KIND_COLOURS[kind], linewidth=0) for kind in in_use],
        labels=[f"{kind}\n{format_bytes(bytes_at_peak[kind])}" for kind in in_use],
        title="at the peak",
        alignment="left",
        loc="upper left",
        bbox_to_anchor=(1.015, 1.06),
        frameon=False,
        labelcolor=INK,
        labelspacing=0.9,
        handlelength=1.2,
        handleheight=1.2,
    ).get_title().set(color=MUTED)


def _trace_outlines(cut: Columns) -> Iterator[tuple[Kind, list[tuple[int, int]]]]:
    """Yield each kind with the outline of it and all below it, the bottom of the stack first."""
    tops = [0] * len(cut.shown)
    for kind in (kind for kind in KIND_COLOURS if kind in cut.bytes_of):
        tops = [below + size for below, size in zip(tops, cut.bytes_of[kind], strict=True)]
        outline = [(0, 0)]
        for column, top in enumerate(tops):
            # A step up or down; where nothing changes, no point is needed.
            if top != outline[-1][1]:
                outline += [(cut.edges[column], outline[-1][1]), (cut.edges[column], top)]
        yield kind, [*outline, (cut.edges[-1], outline[-1][1]), (cut.edges[-1], 0)]
