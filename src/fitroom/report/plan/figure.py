"""The figure of a plan's alternatives: memory across, speed up, the budget as a line."""

from typing import Any

from fitroom.planning.result import Plan
from fitroom.report.plan import words
from fitroom.report.plan.points import Point, Points, find_points
from fitroom.report.shared.canvas import FileFormat, make_size_ticks, paint_figure
from fitroom.report.shared.palette import ALARM, GROUP_COLOURS, INK, LINE, MUTED, PAPER
from fitroom.report.shared.words import shorten_middle
from fitroom.units import format_bytes

_WIDTH, _HEIGHT = 10.4, 5.4
_MARKERS = "o^sD"
_NAME_WIDTH, _NAME_HEIGHT = 20, 11
"""The size of a number above a point, in points of print."""


def draw_plan(plan: Plan, file_format: FileFormat) -> bytes:
    """Draw the figure as the bytes of a file; the same plan always gives the same bytes."""

    def paint(figure: Any) -> None:
        figure.subplots_adjust(left=0.075, right=0.97, bottom=0.115, top=0.79)
        axes = figure.add_subplot(facecolor="none")
        _draw_title(figure, plan)
        if plan.frontier:
            _draw_points(axes, find_points(plan))
        else:
            axes.set_axis_off()

    return paint_figure(paint, file_format, width=_WIDTH, height=_HEIGHT)


def _draw_title(figure: Any, plan: Plan) -> None:
    looks: dict[str, Any] = {"color": INK, "parse_math": False}
    figure.text(0.02, 0.94, shorten_middle(words.format_headline(plan), 88), fontsize=13, weight="bold", **looks)
    figure.text(0.02, 0.895, words.format_verdict(plan), fontsize=10.5, **looks)


def _draw_points(axes: Any, found: Points) -> None:
    _draw_frame(axes, found)
    _draw_budget(axes, found)
    _draw_dots(axes, found.chosen, "this plan", color=INK, marker="*", markersize=15, markeredgecolor=PAPER, zorder=5)
    for place, (name, points) in enumerate(found.groups.items()):
        colour = GROUP_COLOURS[place % len(GROUP_COLOURS)]
        _draw_dots(axes, points, name, color=colour, marker=_MARKERS[place % len(_MARKERS)])
    _draw_dots(axes, found.too_large, "does not fit", color=MUTED, marker="x")
    _draw_names(axes, found)
    # Above the axes, where no point can be.
    legend = {"loc": "lower left", "bbox_to_anchor": (-0.01, 1.0), "ncols": 4, "frameon": False}
    axes.legend(labelcolor=INK, handletextpad=0.3, columnspacing=1.4, borderaxespad=0.2, **legend)


def _draw_frame(axes: Any, found: Points) -> None:
    furthest = max(point.across_bytes for point in found.points)
    right = furthest if found.budget_is_far else max(furthest, found.budget_bytes)
    places, labels, unit = make_size_ticks(1.08 * right, right)
    axes.set_xlim(0, 1.08 * right)
    axes.set_xticks(places, labels)
    axes.set_ylim(0, 1.15 * max(point.up for point in found.points))
    numbers = "; above each point, its micro-batch" if found.has_speed else ""
    axes.set_xlabel(f"{unit} of memory needed{numbers}", color=MUTED)
    axes.set_ylabel(found.up_words, color=MUTED)
    axes.tick_params(colors=MUTED, length=0, pad=5)
    axes.grid(color=LINE, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(MUTED)


def _draw_budget(axes: Any, found: Points) -> None:
    name = f"budget {format_bytes(found.budget_bytes)}"
    along: dict[str, Any] = {"transform": axes.get_xaxis_transform(), "ha": "right", "va": "bottom", "fontsize": 8.5}
    if found.budget_is_far:
        axes.text(axes.get_xlim()[1], 0.015, f"{name} →", color=MUTED, **along)
        return
    axes.axvline(found.budget_bytes, color=ALARM, linewidth=1.2, linestyle=(0, (5, 3)), zorder=1)
    axes.text(found.budget_bytes - 0.004 * axes.get_xlim()[1], 0.015, name, color=ALARM, **along)


def _draw_dots(axes: Any, points: list[Point], name: str, **looks: Any) -> None:
    if points:
        across, up = zip(*((point.across_bytes, point.up) for point in points), strict=True)
        axes.plot(across, up, linestyle="none", label=name, **{"markersize": 7, "zorder": 3} | looks)


def _draw_names(axes: Any, found: Points) -> None:
    """Write the micro-batch above each point; the chosen one first, and none where it would cover another."""
    taken: list[tuple[float, float]] = []
    for point in [*found.chosen, *sorted(found.points, key=lambda point: -point.up)]:
        place = (point.across_bytes, point.up)
        across, up = axes.transData.transform(place) * 72 / axes.figure.dpi
        if any(abs(across - x) < _NAME_WIDTH and abs(up - y) < _NAME_HEIGHT for x, y in taken):
            continue
        taken.append((across, up))
        axes.annotate(
            str(point.option.micro_batch),
            place,
            xytext=(0, 9 if point.chosen else 5),
            textcoords="offset points",
            ha="center",
            va="bottom",
            fontsize=8,
            zorder=4,
            color=INK if point.chosen else MUTED,
            weight="bold" if point.chosen else "normal",
        )
