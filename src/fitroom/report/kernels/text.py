"""The layers that fused kernels serve and what that saves, for reading in a terminal."""

from collections import Counter
from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from fitroom.backends.contract import FusedLayer
from fitroom.memory.estimate import Estimate
from fitroom.report.shared.words import format_backend
from fitroom.units import format_bytes


def render_kernels_text(layers: Sequence[FusedLayer], plain: Estimate, fused: Estimate) -> RenderableType:
    """Render a table of the layers by kind, and the peaks of both steps below it."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("layers", "of class", "computed by"):
        table.add_column(name, justify="right" if name == "layers" else "left")
    for (kind, by), count in count_layers(layers).items():
        table.add_row(str(count), kind, by)
    change = fused.peak_bytes / plain.peak_bytes - 1
    title = (
        f"{plain.model}, batch {plain.batch_size}, {plain.precision}, {format_backend(plain.backend)} on {plain.gpu}"
    )
    peaks = (
        f"peak {format_bytes(plain.peak_bytes)} with Keras's kernels, "
        f"{format_bytes(fused.peak_bytes)} with fused ones: {abs(change):.0%} {'more' if change > 0 else 'less'}. "
        "Changes rounding."
    )
    return Group(Text(title, "bold"), table, Text(peaks))


def count_layers(layers: Sequence[FusedLayer]) -> Counter[tuple[str, str]]:
    """Count layers by their class and what computes them, the most frequent first."""
    found = Counter((each.kind, each.operation or f"Keras: {each.why_not}") for each in layers)
    return Counter(dict(found.most_common()))
