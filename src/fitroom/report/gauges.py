"""Bars in a terminal that fill up: a name, how much, and in figures."""

from collections.abc import Sequence
from dataclasses import dataclass

from rich.text import Text

from fitroom.report.sheet import Sheet

_WIDEST_BAR = 48
_NARROWEST_BAR = 6
_GAP = 2


@dataclass(frozen=True, kw_only=True)
class Gauge:
    """One bar. `share` None is not known and draws an empty one."""

    label: str
    share: float | None
    figure: str
    style: str = "cyan"


def gauge_lines(gauges: Sequence[Gauge], sheet: Sheet) -> list[Text]:
    """All of them below one another; without bars where there is no room for them."""
    label_width = max((len(gauge.label) for gauge in gauges), default=0)
    figure_width = max((len(gauge.figure) for gauge in gauges), default=0)
    room = sheet.width - label_width - figure_width - 2 * _GAP
    bar_width = min(room, _WIDEST_BAR) if room >= _NARROWEST_BAR else 0
    lines = []
    for gauge in gauges:
        line = Text(no_wrap=True, overflow="crop")
        line.append(gauge.label.ljust(label_width + _GAP))
        if bar_width:
            line.append_text(_bar(gauge, bar_width, sheet)).append(" " * _GAP)
        lines.append(line.append(gauge.figure))
    return lines


def _bar(gauge: Gauge, width: int, sheet: Sheet) -> Text:
    full = int(min(max(gauge.share or 0.0, 0.0), 1.0) * width)
    mark, track = ("#", ".") if sheet.ascii_only else ("━", "─")
    return Text.assemble((mark * full, gauge.style), (track * (width - full), "dim"))
