"""An estimate as one self-contained HTML page: no network, for phone and desktop, light and dark."""

import re
from html import escape
from string import Template

from fitroom.memory.estimate import Estimate
from fitroom.report import words
from fitroom.report.columns import columns
from fitroom.report.figure import NARROW, WIDE, Layout, draw
from fitroom.report.markup import asset, script_json
from fitroom.report.palette import ALARM, INK, KIND_COLOURS, LINE, MUTED, PAPER, PHASE_COLOURS
from fitroom.report.rows import kind_rows, layer_rows
from fitroom.units import format_bytes
from fitroom.version import __version__

_THEME = {INK: "--ink", MUTED: "--muted", LINE: "--line", ALARM: "--alarm", PAPER: "--card"} | {
    colour: f"--{phase}" for phase, colour in PHASE_COLOURS.items()
}
"""The colours of a picture that the page's style sheet decides, so that they follow dark mode."""


def page(estimate: Estimate) -> str:
    """The whole page as text. Whatever comes from the model is escaped."""
    versions = [*estimate.versions.items(), ("fitroom", __version__)]
    return Template(asset("page.html")).substitute(
        style=asset("base.css") + asset("page.css"),
        script=asset("format.js") + asset("page.js"),
        title=escape(words.headline(estimate)),
        verdict=escape(words.verdict(estimate)),
        verdict_class="fits" if estimate.fits else "exceeds",
        sizes=_sizes(estimate),
        plots=_plot(estimate, WIDE, "wide") + _plot(estimate, NARROW, "narrow"),
        data=_hover_data(estimate),
        kinds=kind_rows(estimate),
        phases=_phases(estimate),
        place=escape(words.peak_place(estimate)),
        num_layers=f"{len(estimate.by_layer):,}",
        layers=layer_rows(estimate),
        notes=_notes(estimate),
        method=escape(words.found_by(estimate)),
        took=words.took(estimate),
        versions=escape(", ".join(f"{package} {version}" for package, version in versions)),
    )


def _sizes(estimate: Estimate) -> str:
    return "\n".join(
        f"<div><dt>{size.name}</dt><dd><b>{format_bytes(size.size_bytes)}</b><span>{size.meaning}</span></dd></div>"
        for size in words.sizes(estimate)
    )


def _plot(estimate: Estimate, layout: Layout, name: str) -> str:
    """The picture inline, in the page's own colours and letters."""
    svg = draw(estimate, layout, "svg").decode()
    opening, body = svg[svg.index("<svg") : svg.rindex("</svg>")].split(">", maxsplit=1)
    view_box = " ".join(re.findall(r'viewBox="[^"]*"', opening))
    body = re.sub(r"<(metadata|style).*?</\1>", "", body, flags=re.DOTALL)
    # Names that repeat from one picture to the next and that nothing points to.
    body = re.sub(r'<g id="[\w.-]+"', "<g", body)
    body = re.sub(r'style="[^"]*"', lambda style: _themed(style[0]), body)
    label = escape(f"Memory over the step. Peak at {words.peak_place(estimate)}.")
    edges = " ".join(f'data-{edge}="{at:.4f}"' for edge, at in layout.area.items())
    return (
        f'<div class="plot {name}" tabindex="0" {edges}>'
        f'<svg {view_box} role="img" aria-label="{label}">{body}</svg></div>'
    )


def _themed(style: str) -> str:
    for colour, variable in _THEME.items():
        style = style.replace(colour, f"var({variable})")
    return re.sub(r"font-family: [^;\"]*;? ?", "", style)


def _phases(estimate: Estimate) -> str:
    return "\n".join(
        f'<tr><th scope="row">{phase}</th><td>{format_bytes(size)}</td></tr>'
        for phase, size in words.phases(estimate).items()
    )


def _notes(estimate: Estimate) -> str:
    if not estimate.notes:
        return ""
    items = "\n".join(f"<li>{escape(note)}</li>" for note in estimate.notes)
    return f"<section><h2>Notes</h2><ul>{items}</ul></section>"


def _hover_data(estimate: Estimate) -> str:
    """What the script shows of each column."""
    cut = columns(estimate.timeline)
    layers = list(dict.fromkeys(moment.layer for moment in cut.moments))
    number = {layer: index for index, layer in enumerate(layers)}
    data = {
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
    return script_json(data)
