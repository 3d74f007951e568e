"""A chart: numbers for the script that draws it, a sentence, and a table of its figures."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, Literal

from fitroom.report.markup import details, table
from fitroom.report.run_words import figure, fraction
from fitroom.units import format_bytes

Unit = Literal["number", "share", "bytes", "rate"]

_MAX_ROWS = 40


@dataclass(frozen=True, kw_only=True)
class Series:
    """One line or area."""

    name: str
    colour: str
    """A colour, or the name of one of the style sheet's."""

    values: Sequence[float | None]
    shaded: bool = False
    """Whether the ground below a line is tinted."""

    shape: Literal["circle", "triangle", "rect", "rectRot", "cross", "star"] = "circle"
    """Of the dots of a chart without lines."""

    is_large: bool = False


@dataclass(frozen=True, kw_only=True)
class Chart:
    """One chart. All of it is JSON but the summary, which stands in its place for those who do not see it."""

    key: str
    title: str
    summary: str
    unit: Unit
    across: Literal["epoch", "update", "seconds", "step", "bytes"]
    """Epochs, optimizer steps, time, operations of one step, or sizes.

    Sizes in bytes make a chart of dots, whichever is nearest to the pointer is explained."""

    at: Sequence[float]
    labels: Sequence[str]
    """What each place along the chart is called."""

    series: Sequence[Series]
    marks: Sequence[dict[str, Any]] = ()
    """Lines across: a value, its name, and the colour."""

    moments: Sequence[dict[str, Any]] = ()
    """Places along that have a name."""

    bands: Sequence[dict[str, Any]] = ()
    stacked: bool = False
    details: Sequence[Sequence[str]] = ()
    """Further lines about each place along the chart."""

    figures: str = ""
    """A table to have in place of the one made from the series."""

    def to_dict(self) -> dict[str, Any]:
        """For the script."""
        return {name: value for name, value in vars(self).items() if name not in ("series", "summary", "figures")} | {
            "series": [vars(series) for series in self.series]
        }

    def table(self) -> str:
        """The same as a table, thinned where there is a lot of it."""
        if self.figures:
            return self.figures
        stride = -(-len(self.at) // _MAX_ROWS)
        shown = range(0, len(self.at), stride or 1)
        heads = [
            {"epoch": "epoch", "update": "step", "seconds": "time", "step": "operation", "bytes": "size"}[self.across]
        ]
        heads += [escape(series.name) for series in self.series]
        return table(
            heads,
            ([escape(self.labels[i]), *(written(s.values[i], self.unit) for s in self.series)] for i in shown),
            caption=escape(self.title) + (f", one place in {stride}" if stride > 1 else ""),
            kind="figures",
        )

    def html(self) -> str:
        """The place where it is drawn, its sentence for those who do not see it, its figures for all."""
        label = escape(f"{self.title}. {self.summary}")
        return (
            f'<figure class="chart"><figcaption>{escape(self.title)}</figcaption><div class="canvas">'
            f'<canvas data-chart="{escape(self.key)}" role="img" aria-label="{label}" tabindex="0">{label}</canvas>'
            f"</div>{details('Figures', self.table())}</figure>"
        )


def written(value: float | None, unit: Unit) -> str:
    """A figure for reading."""
    if unit == "bytes":
        return "-" if value is None else format_bytes(round(value))
    return fraction(value) if unit == "share" else figure(value)
