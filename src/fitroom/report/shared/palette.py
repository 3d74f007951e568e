"""The colours of figures and pages, the same in every one of them."""

from fitroom.memory.timeline import Kind, Phase

# Paul Tol's "bright" scheme: told apart with every common colour blindness, on white and on black.
KIND_COLOURS: dict[Kind, str] = {
    "weights": "#4477aa",
    "optimizer": "#aa3377",
    "input": "#228833",
    "gradients": "#ee6677",
    "activations": "#66ccee",
    "workspace": "#ccbb44",
    "other": "#bbbbbb",
}
"""Each kind's colour, in the order in which they are stacked: what stays all step long is at the bottom."""

GROUP_COLOURS = ("#4477aa", "#ee6677", "#228833", "#aa3377", "#ccbb44", "#66ccee")
"""Of groups of points, from the same scheme."""

PHASE_COLOURS: dict[Phase, str] = {"forward": "#d8dee6", "backward": "#aeb9c7", "update": "#8593a6"}
"""Greys, so that a phase is never taken for a kind."""

INK = "#1f2933"
MUTED = "#616e7c"
LINE = "#dfe3e8"
ALARM = "#b3261e"
PAPER = "#fefefe"
"""Not quite white, and ink not quite black: a page that knows dark mode replaces each by its own colour."""
