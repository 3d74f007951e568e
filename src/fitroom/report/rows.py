"""The rows of an estimate's tables, the same on every page."""

from collections.abc import Sequence
from html import escape

from fitroom.memory.estimate import Estimate, LayerBytes
from fitroom.report.columns import columns
from fitroom.report.palette import KIND_COLOURS
from fitroom.report.words import percent
from fitroom.units import format_bytes


def kind_rows(estimate: Estimate) -> str:
    """Each kind at the peak. Doubles as the legend, so it has the order of the stack, the top first."""
    sizes = estimate.by_kind
    in_use = columns(estimate.timeline).bytes_of
    return "\n".join(
        f'<tr><th scope="row"><i style="background:{KIND_COLOURS[kind]}"></i>{kind}</th>'
        f"<td>{format_bytes(sizes[kind])}</td>"
        f"<td>{percent(sizes[kind], estimate.timeline.peak_bytes)}</td></tr>"
        for kind in reversed(KIND_COLOURS)
        if kind in in_use
    )


def layer_rows(estimate: Estimate, rows: Sequence[LayerBytes] | None = None) -> str:
    """Layers at the peak, all of them or some, each with a bar as long as its share of the largest."""
    largest = max((row.bytes for row in estimate.by_layer), default=0) or 1
    return "\n".join(
        f'<tr style="--share:{100 * row.bytes / largest:.1f}%"><th scope="row">{escape(row.layer)}</th>'
        f"<td>{format_bytes(row.bytes)}</td>"
        f"<td>{percent(row.bytes, estimate.timeline.peak_bytes)}</td></tr>"
        for row in (estimate.by_layer if rows is None else rows)
    )
