"""The figure of a watch: memory over time against the limit, and below it how busy the device and the input were."""

from collections.abc import Sequence
from typing import Any

from fitroom.report.shared.canvas import FileFormat, make_size_ticks, paint_figure
from fitroom.report.shared.palette import ALARM, GROUP_COLOURS, INK, LINE, MUTED
from fitroom.report.watch import words
from fitroom.units import format_bytes
from fitroom.watching.summary import Reading, WatchSummary

_WIDTH, _HEIGHT = 10.4, 5.8
_FAR = 3.0
"""A limit this many times above the highest value is only named: drawn, it would press the curves to the ground."""


def draw_watch(summary: WatchSummary, readings: Sequence[Reading], file_format: FileFormat) -> bytes:
    """Draw the figure as the bytes of a file; the same readings always give the same bytes."""

    def paint(figure: Any) -> None:
        memory, shares = figure.subplots(2, 1, sharex=True, gridspec_kw={"height_ratios": [3, 1]})
        figure.subplots_adjust(left=0.075, right=0.97, bottom=0.095, top=0.84, hspace=0.16)
        looks: dict[str, Any] = {"color": INK, "parse_math": False}
        figure.text(0.02, 0.95, words.format_headline(summary), fontsize=13, weight="bold", **looks)
        figure.text(0.02, 0.905, _format_verdict(summary), fontsize=10.5, **looks)
        _draw_memory(memory, readings)
        _draw_shares(shares, readings)
        shares.set_xlabel("seconds since watching began", color=MUTED)
        for axes in (memory, shares):
            axes.tick_params(colors=MUTED, length=0, pad=5)
            axes.grid(axis="y", color=LINE, linewidth=0.8)
            axes.set_axisbelow(True)
            axes.spines[["top", "right", "left"]].set_visible(False)
            axes.spines["bottom"].set_color(MUTED)
        _mark_epochs(memory, readings)

    return paint_figure(paint, file_format, width=_WIDTH, height=_HEIGHT)


def _format_verdict(summary: WatchSummary) -> str:
    facts = words.list_facts(summary)
    first = facts[summary.devices[0].name]
    return f"{first}; input: {facts['input']}" if "input" in facts else first


def _draw_memory(axes: Any, readings: Sequence[Reading]) -> None:
    """Draw the lines of each device, or of the host where no device is counted."""
    at = [reading["seconds"] for reading in readings]
    counted = [name for name in readings[-1]["devices"] if any(_of(one, name)["peak_bytes"] for one in readings)]
    highest = 1
    for place, name in enumerate(counted):
        colour = GROUP_COLOURS[place % len(GROUP_COLOURS)]
        in_use = [_of(reading, name)["in_use_bytes"] or 0 for reading in readings]
        peaks = [_of(reading, name)["peak_bytes"] or 0 for reading in readings]
        highest = max(highest, *in_use, *peaks)
        axes.fill_between(at, in_use, color=colour, alpha=0.25, linewidth=0, step="post")
        axes.step(at, peaks, where="pre", color=colour, linewidth=1.6, label=f"{name}: peak since the reading before")
        axes.step(at, in_use, where="post", color=colour, linewidth=0.9, label=f"{name}: in use")
    if not counted:
        host = [reading["host_bytes"] or 0 for reading in readings]
        highest = max(highest, *host)
        axes.plot(at, host, color=GROUP_COLOURS[0], linewidth=1.6, label="host memory of the process")
    limit_bytes = words.find_limit(readings) if counted else None
    is_drawn = limit_bytes is not None and limit_bytes <= _FAR * highest
    top = 1.12 * max(highest, limit_bytes if is_drawn and limit_bytes else 0)
    axes.set_ylim(0, top)
    places, labels, unit = make_size_ticks(top, round(top))
    axes.set_yticks(places, labels)
    axes.set_ylabel(unit, color=MUTED)
    if limit_bytes is not None:
        _draw_limit(axes, limit_bytes, is_drawn=is_drawn)
    legend = {"loc": "lower left", "bbox_to_anchor": (-0.01, 1.0), "ncols": 3, "frameon": False}
    axes.legend(labelcolor=INK, handlelength=1.4, columnspacing=1.4, borderaxespad=0.2, fontsize=8.5, **legend)


def _draw_limit(axes: Any, limit_bytes: int, *, is_drawn: bool) -> None:
    name = f"limit {format_bytes(limit_bytes)}"
    if is_drawn:
        axes.axhline(limit_bytes, color=ALARM, linewidth=1.2, linestyle=(0, (5, 3)))
    height = limit_bytes / axes.get_ylim()[1] + 0.012 if is_drawn else 0.93
    axes.text(
        0.995,
        height,
        name if is_drawn else f"↑ {name}",
        transform=axes.transAxes,
        ha="right",
        va="bottom",
        fontsize=8.5,
        color=ALARM if is_drawn else MUTED,
    )


def _draw_shares(axes: Any, readings: Sequence[Reading]) -> None:
    at = [reading["seconds"] for reading in readings]
    wanted = (
        ("input_wait", "waiting for input", GROUP_COLOURS[1]),
        ("utilization", "GPU utilisation", GROUP_COLOURS[2]),
    )
    for name, label, colour in wanted:
        known = [(x, 100 * one[name]) for x, one in zip(at, readings, strict=True) if one[name] is not None]
        if known:
            axes.step(*zip(*known, strict=True), where="pre", color=colour, linewidth=1.3, label=label)
    axes.set_ylim(0, 105)
    axes.set_yticks([0, 50, 100])
    axes.set_ylabel("% of time", color=MUTED)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(loc="upper right", frameon=False, fontsize=8.5, labelcolor=INK, ncols=2)


def _mark_epochs(axes: Any, readings: Sequence[Reading]) -> None:
    """Mark where epochs begin, where that is few enough to read."""
    begins: dict[int, float] = {}
    for reading in readings:
        if reading["epoch"] is not None:
            begins.setdefault(reading["epoch"], reading["seconds"])
    if not 1 < len(begins) <= 20:
        return
    for epoch, seconds in begins.items():
        axes.axvline(seconds, color=LINE, linewidth=0.8, zorder=0)
        axes.text(
            seconds,
            0.985,
            f" epoch {epoch + 1}",
            transform=axes.get_xaxis_transform(),
            fontsize=7.5,
            color=MUTED,
            va="top",
        )


def _of(reading: Reading, device: str) -> dict[str, Any]:
    found: dict[str, Any] = reading["devices"][device]
    return found
