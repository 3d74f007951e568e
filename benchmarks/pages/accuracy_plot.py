"""The picture of docs/accuracy.md: every case's error over its measured peak.

python benchmarks/pages/accuracy_plot.py            # writes docs/images/accuracy.svg
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from matplotlib.figure import Figure

from fitroom.report.shared.palette import INK, LINE, MUTED, PAPER
from pages.figures import COLUMNS, compared

PICTURE = Path(__file__).parents[2] / "docs" / "images" / "accuracy.svg"
_MARKS = {
    "jax": ("o", "#4477aa"),
    "torch": ("s", "#ee6677"),
    "tensorflow-jit": ("^", "#228833"),
    "tensorflow-graph": ("D", "#aa3377"),
}
_GIB = 2**30


def main() -> None:
    """Draw it."""
    found = compared()
    figure = Figure(figsize=(9.2, 4.6), facecolor=PAPER, layout="constrained")
    axes = figure.add_subplot(facecolor=PAPER)
    for column, (shape, colour) in _MARKS.items():
        mine = [each for each in found if each.column == column]
        for half, filled in (("held-out", True), ("tune", False)):
            points = [each for each in mine if each.case.half == half]
            axes.scatter(
                [each.measured["peak_bytes"] / _GIB for each in points],
                [100 * each.error for each in points],
                marker=shape,
                s=34,
                linewidths=1.1,
                edgecolors=colour,
                facecolors=colour if filled else "none",
                label=COLUMNS[column].replace("`", "") if filled else None,
            )
    axes.axhline(0, color=INK, linewidth=0.8)
    axes.set_xscale("log")
    axes.set_xticks([0.25, 0.5, 1, 2, 4, 8, 16, 32], labels=["0.25", "0.5", "1", "2", "4", "8", "16", "32"])
    axes.minorticks_off()
    axes.set_yscale("symlog", linthresh=1, linscale=1.2)
    ticks = [-10, -5, -2, -1, -0.5, 0, 0.5, 1, 2, 5, 10]
    axes.set_yticks(ticks, labels=[f"{tick:+g}" if tick else "0" for tick in ticks])
    axes.set_xlabel("measured peak on an H200, GiB", color=MUTED)
    axes.set_ylabel("error of the prediction, %", color=MUTED)
    axes.grid(color=LINE, linewidth=0.7)
    axes.tick_params(colors=MUTED, length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)
    figure.legend(loc="outside upper left", ncols=4, frameon=False, labelcolor=INK)
    figure.text(0.995, 0.955, "filled: held out", ha="right", color=MUTED, fontsize=9)
    PICTURE.parent.mkdir(exist_ok=True)
    figure.savefig(PICTURE, metadata={"Date": None})


if __name__ == "__main__":
    main()
