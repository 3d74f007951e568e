"""An estimate as one self-contained HTML page: no network, for phone and desktop, light and dark."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fitroom import __version__
from fitroom.memory.estimate import Estimate
from fitroom.memory.timeline import Kind
from fitroom.report.estimate import words
from fitroom.report.estimate.columns import cut_columns
from fitroom.report.estimate.figure import NARROW, WIDE, Layout, draw_estimate
from fitroom.report.shared.palette import ALARM, INK, KIND_COLOURS, LINE, MUTED, PAPER, PHASE_COLOURS
from fitroom.report.shared.templates import dump_script_json, load_asset, render

if TYPE_CHECKING:
    from markupsafe import Markup

_THEME = {INK: "--ink", MUTED: "--muted", LINE: "--line", ALARM: "--alarm", PAPER: "--card"} | {
    colour: f"--{phase}" for phase, colour in PHASE_COLOURS.items()
}
"""The colours of a figure that the page's style sheet decides, so that they follow dark mode."""


@dataclass(frozen=True, kw_only=True)
class KindRow:
    """One kind of memory at the peak, with its colour in the figure."""

    kind: Kind
    bytes: int
    colour: str


@dataclass(frozen=True, kw_only=True)
class _Plot:
    """A figure to stand in the page: its drawing, and where in it the axes are."""

    name: str
    area: dict[str, float]
    view_box: str
    drawing: "Markup"


def render_estimate_page(estimate: Estimate) -> str:
    """Return the whole page as text."""
    versions = [*estimate.versions.items(), ("fitroom", __version__)]
    return render(
        "estimate/page.html",
        style=load_asset("base.css") + load_asset("estimate.css"),
        script=load_asset("format.js") + load_asset("estimate.js"),
        data=dump_script_json(_collect_hover_data(estimate)),
        title=words.format_headline(estimate),
        estimate=estimate,
        verdict=words.format_verdict(estimate),
        sizes=words.list_sizes(estimate),
        plots=[_draw_plot(estimate, WIDE, "wide"), _draw_plot(estimate, NARROW, "narrow")],
        kinds=list_kinds(estimate),
        phases=words.list_phases(estimate),
        place=words.format_peak_place(estimate),
        largest_bytes=find_largest_layer(estimate),
        method=words.format_method(estimate),
        time_taken=words.format_time_taken(estimate),
        versions=", ".join(f"{package} {version}" for package, version in versions),
    )


def list_kinds(estimate: Estimate) -> Sequence[KindRow]:
    """Return each kind that is ever in use with its bytes at the peak, in the order of the stack, the top first."""
    in_use = cut_columns(estimate.timeline).bytes_of
    return [
        KindRow(kind=kind, bytes=estimate.by_kind[kind], colour=KIND_COLOURS[kind])
        for kind in reversed(KIND_COLOURS)
        if kind in in_use
    ]


def find_largest_layer(estimate: Estimate) -> int:
    """Return the bytes of the largest layer at the peak, which has the longest bar; 1 where no layer has any."""
    return max((row.bytes for row in estimate.by_layer), default=0) or 1


def _draw_plot(estimate: Estimate, layout: Layout, name: str) -> _Plot:
    """Draw the figure to stand in the page, in the page's own colours and letters."""
    from markupsafe import Markup

    svg = draw_estimate(estimate, layout, "svg").decode()
    opening, body = svg[svg.index("<svg") : svg.rindex("</svg>")].split(">", maxsplit=1)
    body = re.sub(r"<(metadata|style).*?</\1>", "", body, flags=re.DOTALL)
    # Names that repeat from one figure to the next and that nothing points to.
    body = re.sub(r'<g id="[\w.-]+"', "<g", body)
    body = re.sub(r'style="[^"]*"', lambda style: _apply_theme(style[0]), body)
    view_box = " ".join(re.findall(r'viewBox="([^"]*)"', opening))
    # What matplotlib writes is markup already; it has escaped the names of the model.
    return _Plot(name=name, area=layout.area, view_box=view_box, drawing=Markup(body))


def _apply_theme(style: str) -> str:
    for colour, variable in _THEME.items():
        style = style.replace(colour, f"var({variable})")
    return re.sub(r"font-family: [^;\"]*;? ?", "", style)


def _collect_hover_data(estimate: Estimate) -> dict[str, Any]:
    """Collect what the script shows of each column."""
    cut = cut_columns(estimate.timeline)
    layers = list(dict.fromkeys(moment.layer for moment in cut.moments))
    number = {layer: index for index, layer in enumerate(layers)}
    return {
        "length": len(estimate.timeline.moments),
        "shown": cut.shown,
        "peak": cut.shown.index(estimate.timeline.peak_moment),
        "names": [moment.name for moment in cut.moments],
        "phases": [moment.phase for moment in cut.moments],
        "layers": layers,
        "layer": [number[moment.layer] for moment in cut.moments],
        "kinds": [
            {"kind": kind, "colour": KIND_COLOURS[kind], "bytes": cut.bytes_of[kind]}
            for kind in reversed(KIND_COLOURS)
            if kind in cut.bytes_of
        ],
    }
