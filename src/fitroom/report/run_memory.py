"""The section of a run's page about memory: predicted against measured, over a step, over the run, by layer."""

from html import escape

from fitroom.cards.catalogue import find_card
from fitroom.errors import UnknownNameError
from fitroom.memory.estimate import Estimate
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
    return compared + of_step + "".join(parts[1:]) + _layers(run.estimate) + _about(run.estimate)


def _compared(run: Run) -> str:
    """Predicted and measured as bars on one scale, with the limit at its end or within it."""
    sizes = (
        ("predicted peak", run.estimate and run.estimate.peak_bytes, "--first"),
        ("measured peak", run.readings.peak_bytes, "--second"),
        ("predicted need", run.estimate and run.estimate.required_bytes, "--backward"),
        ("limit", run.limit_bytes, "--muted"),
    )
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
    if run.estimate is None or not run.estimate.peak_bytes or measured is None:
        return "The peak of training"
    said = f"The peak was {measured_against_predicted(run.estimate.peak_bytes, measured)}"
    if len(run.readings.micro_batches) > 1:
        sizes = ", ".join(map(str, run.readings.micro_batches))
        said += f"; the micro-batch changed on the way ({sizes}), the prediction is for one size"
    device = run.job_fact("device")
    if device and not _is_same_card(str(device), run.estimate.gpu):
        said += f"; it trained on {device}, the prediction is for {run.estimate.gpu}"
    return escape(f"{said}.")


def _is_same_card(device: str, gpu: str) -> bool:
    """Whether a driver's name, "NVIDIA H200", and the catalogue's, "H200", are of one card."""
    try:
        return device == gpu or find_card(device) == find_card(gpu)
    except UnknownNameError:
        return False


def _layers(estimate: Estimate) -> str:
    rows, others = estimate.by_layer[:_NUM_LAYERS], estimate.by_layer[_NUM_LAYERS:]
    shown = f'<table class="layers"><caption>The biggest layers</caption>{layer_rows(estimate, rows)}</table>'
    if not others:
        return shown
    share = percent(sum(row.bytes for row in others), estimate.timeline.peak_bytes)
    body = f'<table class="layers">{layer_rows(estimate, others[:_MAX_LAYERS])}</table>'
    return shown + details(f"{len(others):,} more layers, {share} together", body)


def _about(estimate: Estimate) -> str:
    """Where the peak is, and how all this was found."""
    notes = "".join(f"<li>{escape(note)}</li>" for note in estimate.notes)
    return (
        f'<p class="muted">The peak is at <span class="path">{escape(peak_place(estimate))}</span>. '
        f"How it was predicted: {escape(found_by(estimate))}</p>" + (f'<ul class="muted">{notes}</ul>' if notes else "")
    )
