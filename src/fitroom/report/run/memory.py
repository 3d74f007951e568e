"""The section of a run's page about memory: predicted against measured, over a step, over the run, by layer."""

from typing import TYPE_CHECKING

from fitroom.cards.catalogue import find_card
from fitroom.errors import UnknownNameError
from fitroom.report.estimate.page import find_largest_layer, list_kinds
from fitroom.report.estimate.words import format_method, format_peak_place
from fitroom.report.run.charts import make_memory_charts
from fitroom.report.run.sections import Bar
from fitroom.report.run.words import compare_with_prediction
from fitroom.report.shared.templates import render_macro
from fitroom.report.shared.words import format_percent
from fitroom.runs.run import Run
from fitroom.units import format_bytes

if TYPE_CHECKING:
    from markupsafe import Markup

_TEMPLATE = "run/memory.html"
_NUM_LAYERS = 10
_MAX_LAYERS = 500


def render_memory(run: Run) -> "Markup | None":
    """Render where the bytes go, and whether the prediction was right."""
    charts, estimate = make_memory_charts(run), run.estimate
    if not charts:
        return None
    bars, caption = _list_sizes(run), _compare(run)
    if estimate is None:
        return render_macro(_TEMPLATE, "measured", charts, bars, caption)
    others = estimate.by_layer[_NUM_LAYERS:]
    share = format_percent(sum(row.bytes for row in others), estimate.timeline.peak_bytes)
    return render_macro(
        _TEMPLATE,
        "predicted",
        charts,
        bars,
        caption,
        {
            "notes": estimate.notes,
            "peak_bytes": estimate.timeline.peak_bytes,
            "place": format_peak_place(estimate),
            "method": format_method(estimate),
            "kinds": list_kinds(estimate),
            "largest_bytes": find_largest_layer(estimate),
            "layers": estimate.by_layer[:_NUM_LAYERS],
            "other_layers": others[:_MAX_LAYERS],
            "others": f"{len(others):,} more layers, {share} together",
        },
    )


def _list_sizes(run: Run) -> list[Bar]:
    """Return predicted and measured sizes and the limit; none where there is nothing to compare."""
    sizes = (
        ("predicted peak", run.estimate and run.estimate.peak_bytes, "--first"),
        ("measured peak", run.readings.peak_bytes, "--second"),
        ("predicted need", run.estimate and run.estimate.required_bytes, "--backward"),
        ("limit", run.limit_bytes, "--muted"),
    )
    known = [Bar(name=name, value=size, text=format_bytes(size), colour=colour) for name, size, colour in sizes if size]
    return known if len(known) > 1 else []


def _compare(run: Run) -> str:
    """Say how far the measured peak is from the predicted one, and what may have made a difference."""
    measured = run.readings.peak_bytes
    if run.estimate is None or not run.estimate.peak_bytes or measured is None:
        return "The peak of training"
    said = f"The peak was {compare_with_prediction(run.estimate.peak_bytes, measured)}"
    if len(run.readings.micro_batches) > 1:
        sizes = ", ".join(map(str, run.readings.micro_batches))
        said += f"; the micro-batch changed during the run ({sizes}), the prediction is for one size"
    device = run.train_job.device
    if device and not _is_same_card(device, run.estimate.gpu):
        said += f"; it trained on {device}, the prediction is for {run.estimate.gpu}"
    return f"{said}."


def _is_same_card(device: str, gpu: str) -> bool:
    """Whether a driver's name, "NVIDIA H200", and the catalogue's, "H200", are of one card."""
    try:
        return device == gpu or find_card(device) == find_card(gpu)
    except UnknownNameError:
        return False
