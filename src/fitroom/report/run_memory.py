"""The section of a run's page about memory: predicted against measured, over a step, over the run, by layer."""

from html import escape

from fitroom.estimating.result import Estimate
from fitroom.report.markup import details
from fitroom.report.rows import kind_rows, layer_rows
from fitroom.report.run_charts import memory_charts
from fitroom.report.run_record import Run
from fitroom.report.run_words import measured_against_predicted
from fitroom.report.words import found_by, peak_place, percent
from fitroom.units import format_bytes

_NUM_LAYERS = 10
_MAX_LAYERS = 500


def memory(run: Run) -> str:
    """Where the bytes go, and whether the prediction was right."""
    parts = [chart.html() for chart in memory_charts(run)]
    if not parts:
        return ""
    compared = _compared(run)
    if run.estimate is None:
        return compared + "".join(parts)
    kinds = f'<table class="kinds"><caption>At the peak</caption>{kind_rows(run.estimate)}</table>'
    of_step = f'<div class="beside">{parts[0]}{kinds}</div>'
    return compared + of_step + "".join(parts[1:]) + _layers(run.estimate)


def _compared(run: Run) -> str:
    """Predicted and measured as bars on one scale, with the limit at its end or within it."""
    measured, limit = run.readings.peak_bytes, run.limit_bytes
    predicted = run.estimate.timeline.peak_bytes if run.estimate else None
    sizes = [("predicted", predicted, "--first"), ("measured", measured, "--second"), ("limit", limit, "--muted")]
    known = [(head, size, colour) for head, size, colour in sizes if size]
    if len(known) < 2:
        return ""
    largest = max(size for _, size, _ in known)
    rows = "\n".join(
        f'<tr style="--share:{100 * size / largest:.1f}%;--bar:var({colour})"><th scope="row">{head}</th>'
        f'<td class="bar"><i></i></td><td>{format_bytes(size)}</td></tr>'
        for head, size, colour in known
    )
    return f'<table class="compared"><caption>{_comparison(run)}</caption>{rows}</table>'


def _comparison(run: Run) -> str:
    measured = run.readings.peak_bytes
    if run.estimate is None or measured is None:
        return "The peak of training"
    said = f"The peak was {measured_against_predicted(run.estimate.timeline.peak_bytes, measured)}"
    if len(run.readings.micro_batches) > 1:
        sizes = ", ".join(map(str, run.readings.micro_batches))
        said += f"; the micro-batch changed on the way ({sizes}), the prediction is for one size"
    return said + "."


def _layers(estimate: Estimate) -> str:
    rows, others = estimate.by_layer[:_NUM_LAYERS], estimate.by_layer[_NUM_LAYERS:]
    place = f'<p class="muted">The peak is at <span class="path">{escape(peak_place(estimate))}</span>.</p>'
    found = f'<p class="muted">How it was predicted: {escape(found_by(estimate))}</p>'
    shown = f'<table class="layers"><caption>The biggest layers</caption>{layer_rows(estimate, rows)}</table>'
    if not others:
        return shown + place + found
    rest = sum(row.bytes for row in others)
    summary = f"{len(others):,} more layers, {percent(rest, estimate.timeline.peak_bytes)} together"
    body = f'<table class="layers">{layer_rows(estimate, others[:_MAX_LAYERS])}</table>'
    return shown + details(summary, body) + place + found
