"""Advice as a figure: a bar for what each change leaves of the peak."""

from pathlib import Path
from typing import Any

from fitroom.errors import InputError
from fitroom.files.durable import open_atomic
from fitroom.lean.advice import Advice
from fitroom.report.shared.canvas import make_size_ticks, paint_figure
from fitroom.report.shared.palette import GROUP_COLOURS, INK, LINE, MUTED
from fitroom.units import format_bytes

_COLOURS = dict(zip(("low", "medium", "high"), (GROUP_COLOURS[2], GROUP_COLOURS[4], GROUP_COLOURS[1]), strict=True))


def save_advice(advice: Advice, path: Path) -> None:
    """Write the figure to a `.svg` or `.png` file."""
    suffix = path.suffix.lower()
    if suffix not in (".svg", ".png"):
        raise InputError(f"This plot is saved as .svg or .png. Received: {str(path)!r}.")
    rows = [advice.own, *advice.rows]

    def paint(figure: Any) -> None:
        from matplotlib.patches import Patch

        axes = figure.add_subplot()
        figure.subplots_adjust(left=0.27, right=0.9, top=0.88, bottom=0.12)
        places = range(len(rows) - 1, -1, -1)
        colours = [_COLOURS.get(row.risk or "", MUTED) for row in rows]
        axes.barh(list(places), [row.peak_bytes for row in rows], color=colours)
        names = ["as it is", *(row.name for row in advice.rows)]
        axes.set_yticks(list(places), names, color=INK)
        for place, row in zip(places, rows, strict=True):
            label = ("~" if row.is_interpolated else "") + format_bytes(row.peak_bytes)
            axes.text(row.peak_bytes, place, f" {label}", va="center", color=INK, fontsize=8)
        end = max(row.peak_bytes for row in rows)
        ticks, labels, unit = make_size_ticks(end, end)
        axes.set_xticks(ticks, labels)
        axes.set_xlabel(f"peak memory of a training step, {unit}", color=INK)
        handles = [Patch(color=colour, label=f"{risk} risk") for risk, colour in _COLOURS.items()]
        figure.legend(handles=handles, loc="upper right", ncols=3, frameon=False, fontsize=8, labelcolor=INK)
        axes.spines[["top", "right", "left"]].set_visible(False)
        axes.grid(axis="x", color=LINE)
        axes.set_axisbelow(True)
        axes.set_title(f"{advice.model}, batch {advice.batch_size}, {advice.gpu}", loc="left", color=INK, weight="bold")

    drawn = paint_figure(paint, "svg" if suffix == ".svg" else "png", width=9.0, height=1.2 + 0.36 * len(rows))
    with open_atomic(path) as file:
        file.write(drawn)
