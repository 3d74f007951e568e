"""What is drawn on the axes of a step's picture: areas, phases, peak, limit, legend."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fitroom.memory.timeline import PHASES, Kind
from fitroom.report.columns import Columns, PhaseBand
from fitroom.report.palette import ALARM, INK, KIND_COLOURS, LINE, MUTED, PAPER, PHASE_COLOURS
from fitroom.units import format_bytes

_UNITS = ((1024**3, "GiB"), (1024**2, "MiB"), (1024, "KiB"), (1, "bytes"))
_POINTS_PER_CHARACTER = 6.2
"""Of bold text at 9 points, a little more than it takes."""
_NAME_IN_HEADROOM = 0.88
_BEHIND_TEXT = {"facecolor": PAPER, "alpha": 0.85, "linewidth": 0, "pad": 0.5}


def frame(axes: Any, num_moments: int, height_bytes: int) -> None:
    """Axes that count in percent of the step and in the unit that suits the height."""
    places, labels, unit = size_ticks(axes.get_ylim()[1], height_bytes)
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


def size_ticks(end_bytes: float, of_bytes: int) -> tuple[list[float], list[str], str]:
    """Round places on an axis up to `end_bytes`, what to write there, and the unit, one that suits `of_bytes`."""
    from matplotlib.ticker import MaxNLocator

    factor, unit = next(row for row in _UNITS if of_bytes >= row[0])
    end = end_bytes / factor
    ticks = [tick for tick in MaxNLocator(7, steps=[1, 2, 2.5, 5, 10]).tick_values(0, end) if 0 <= tick <= end]
    return [tick * factor for tick in ticks], [f"{tick:g}" for tick in ticks], unit


def kinds(axes: Any, cut: Columns) -> None:
    """The stacked areas. Each reaches down to the ground, and the lower ones cover what is below."""
    for kind, outline in reversed(list(_outlines(cut))):
        across, up = zip(*outline, strict=True)
        axes.fill(across, up, color=KIND_COLOURS[kind], linewidth=0, zorder=2, gid=f"kind-{kind}")


def phases(axes: Any, bands: Sequence[PhaseBand]) -> None:
    """A ribbon along the top; each phase is named once, on its longest band."""
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


def peak(axes: Any, across: float, peak_bytes: int, name: str, limit_bytes: int) -> None:
    """A dot on the peak and its name above; `across` is from 0 to 1."""
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


def limit(axes: Any, limit_bytes: int, *, fits: bool, is_drawn: bool, at_right: bool) -> None:
    """The allocator's limit: a dashed line, or where that is far above only its name."""
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


def legend(axes: Any, cut: Columns, bytes_at_peak: Mapping[Kind, int]) -> None:
    """Every kind that is ever in use, in the order of the stack, with its bytes at the peak."""
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


def _outlines(cut: Columns) -> Iterator[tuple[Kind, list[tuple[int, int]]]]:
    """Each kind with the outline of it and all below it, the bottom of the stack first."""
    tops = [0] * len(cut.shown)
    for kind in (kind for kind in KIND_COLOURS if kind in cut.bytes_of):
        tops = [below + size for below, size in zip(tops, cut.bytes_of[kind], strict=True)]
        outline = [(0, 0)]
        for column, top in enumerate(tops):
            # A step up or down; where nothing changes, no point is needed.
            if top != outline[-1][1]:
                outline += [(cut.edges[column], outline[-1][1]), (cut.edges[column], top)]
        yield kind, [*outline, (cut.edges[-1], outline[-1][1]), (cut.edges[-1], 0)]
