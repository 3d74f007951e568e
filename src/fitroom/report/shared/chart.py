"""A chart of a page: numbers for the script that draws it, a sentence, and a table of its figures."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from fitroom.report.shared.words import format_figure, format_share
from fitroom.units import format_bytes

Unit = Literal["number", "share", "bytes", "rate"]

_MAX_ROWS = 40
_HEADS = {"epoch": "epoch", "update": "step", "seconds": "time", "step": "operation", "bytes": "size"}


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
class FigureTable:
    """The figures of a chart as a table whose first column names its rows."""

    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str = ""
    bold_row: int | None = None
    """The number of a row whose name stands out."""


@dataclass(frozen=True, kw_only=True)
class Chart:
    """One chart. The script gets all of it but summary and figures, which are for those who do not see it."""

    key: str
    title: str
    summary: str
    unit: Unit
    across: Literal["epoch", "update", "seconds", "step", "bytes"]
    """Epochs, optimizer steps, time, operations of one step, or sizes.

    Sizes in bytes make a chart of dots, and the dot nearest to the pointer is explained."""

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

    figures: FigureTable | None = None
    """A table to have in place of the one made from the series."""

    def to_dict(self) -> dict[str, Any]:
        """Return what the script needs, as JSON."""
        return {name: value for name, value in vars(self).items() if name not in ("series", "summary", "figures")} | {
            "series": [vars(series) for series in self.series]
        }

    @property
    def table(self) -> FigureTable:
        """The same figures as a table, thinned where there are many."""
        if self.figures:
            return self.figures
        stride = -(-len(self.at) // _MAX_ROWS)
        shown = range(0, len(self.at), stride or 1)
        return FigureTable(
            heads=[_HEADS[self.across], *(series.name for series in self.series)],
            rows=[[self.labels[i], *(format_value(s.values[i], self.unit) for s in self.series)] for i in shown],
            caption=self.title + (f", one place in {stride}" if stride > 1 else ""),
        )


def format_value(value: float | None, unit: Unit) -> str:
    """Write a figure of a chart in its unit."""
    if unit == "bytes":
        return "-" if value is None else format_bytes(round(value))
    return format_share(value) if unit == "share" else format_figure(value)
