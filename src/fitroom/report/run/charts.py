"""The charts of a run: which there are and what each shows."""

from collections.abc import Sequence
from typing import Any

from fitroom.events import EventKind
from fitroom.memory.estimate import Estimate
from fitroom.memory.timeline import Moment
from fitroom.report.estimate.columns import cut_columns, find_phase_bands
from fitroom.report.estimate.words import format_peak_place
from fitroom.report.plan.chart import make_frontier_chart
from fitroom.report.run.words import format_metric_name, is_share
from fitroom.report.shared.chart import Chart, Series, Unit, format_value
from fitroom.report.shared.palette import KIND_COLOURS
from fitroom.report.shared.words import format_duration
from fitroom.runs.readings import Point
from fitroom.runs.run import Run, parse_time
from fitroom.units import format_bytes

MAX_STEP_COLUMNS = 400
_MAX_EPOCHS = 400
_MAX_MOMENTS = 20


def make_training_charts(run: Run) -> list[Chart]:
    """Make the charts of loss and metrics, learning rate and speed."""
    return [*_make_loss_charts(run), *_make_history_charts(run), *_make_pace_charts(run)]


def make_memory_charts(run: Run) -> list[Chart]:
    """Make the charts of memory: one step as predicted, and the whole run as measured."""
    of_step = [_make_step_chart(run, run.estimate)] if run.estimate else []
    return [*of_step, *_make_measured_charts(run)]


def make_plan_charts(run: Run) -> list[Chart]:
    """Make the chart of the plan's alternatives: memory against speed."""
    return [make_frontier_chart(run.plan)] if run.plan and run.plan.frontier else []


def _make_history_charts(run: Run) -> list[Chart]:
    """Make a chart for each metric, in training and in validation."""
    metrics = dict.fromkeys(metric.removeprefix("val_") for metric, values in run.history.items() if values)
    if run.readings.points:  # which tell the learning rate of every batch
        metrics.pop("learning_rate", None)
    return [_make_history_chart(run, metric) for metric in metrics]


def _make_pace_charts(run: Run) -> list[Chart]:
    """Make the charts of learning rate and speed over the run, where they were read."""
    rates = [point.learning_rate for point in run.readings.points]
    speeds = [point.pictures_per_second for point in run.readings.points]
    return [
        *_make_charts_over_run(run, "learning-rate", "Learning rate", "number", rates),
        *_make_charts_over_run(run, "speed", "Images per second", "rate", speeds),
    ]


def _make_loss_charts(run: Run) -> list[Chart]:
    """Make the chart of the loss batch by batch, for a run that has not ended an epoch yet."""
    losses = [point.loss for point in run.readings.points]
    return [] if run.num_epochs else _make_charts_over_run(run, "loss", "Loss so far", "number", losses)


def _make_step_chart(run: Run, estimate: Estimate) -> Chart:
    """Make the chart of the predicted memory over one step by kind, with the limit and the measured peak."""
    cut = cut_columns(estimate.timeline, MAX_STEP_COLUMNS)
    length = len(estimate.timeline.moments)
    # Each column holds until the next begins, so the last one is said once more at the end.
    shown = [*range(len(cut.shown)), len(cut.shown) - 1]
    limit_bytes = run.limit_bytes or estimate.limit_bytes
    marks = [_make_limit_mark(limit_bytes)]
    if run.readings.peak_bytes is not None:
        measured = run.readings.peak_bytes
        marks.append({"value": measured, "name": f"measured peak {format_bytes(measured)}", "colour": "--ink"})
    place = format_peak_place(estimate)
    return Chart(
        key="step",
        title="One training step, predicted",
        summary=f"The predicted memory rises to {format_bytes(estimate.peak_bytes)} at {place}.",
        unit="bytes",
        across="step",
        at=[100 * edge / length for edge in cut.edges],
        labels=[_format_moment(cut.moments[index], cut.shown[index], length) for index in shown],
        series=[
            Series(name=kind, colour=colour, values=[cut.bytes_of[kind][index] for index in shown])
            for kind, colour in KIND_COLOURS.items()
            if kind in cut.bytes_of
        ],
        marks=marks,
        bands=[
            {"name": band.phase, "first": 100 * band.first / length, "end": 100 * band.end / length}
            for band in find_phase_bands(estimate.timeline)
        ],
        stacked=True,
    )


def _make_measured_charts(run: Run) -> list[Chart]:
    """Make the chart of the measured memory over the run, with the limit; none where nothing was read."""
    points = run.readings.points
    peak_bytes = run.readings.peak_bytes
    if peak_bytes is None:
        return []
    summary = f"The framework had at most {format_bytes(peak_bytes)} in use"
    summary += f", of {format_bytes(run.limit_bytes)}." if run.limit_bytes else "."
    wanted = (
        Series(name="in use", colour="--first", values=[point.in_use_bytes for point in points], shaded=True),
        Series(
            name="peak since the previous reading", colour="--second", values=[point.peak_bytes for point in points]
        ),
    )
    chart = Chart(
        key="memory",
        title="Over the run, measured",
        summary=summary,
        unit="bytes",
        across="seconds",
        at=[point.seconds for point in points],
        labels=[_format_point(point) for point in points],
        series=[series for series in wanted if any(value is not None for value in series.values)],
        marks=[_make_limit_mark(run.limit_bytes)] if run.limit_bytes else [],
        moments=_list_moments(run),
    )
    return [chart]


def _make_history_chart(run: Run, metric: str) -> Chart:
    count = run.num_epochs
    shown = sorted({*range(0, count, -(-count // _MAX_EPOCHS)), count - 1})
    unit: Unit = "share" if is_share(metric) else "number"
    series = [
        Series(name=name, colour=colour, values=[values[at] if at < len(values) else None for at in shown])
        for name, colour, values in (
            ("training", "--first", run.history.get(metric, [])),
            ("validation", "--second", run.history.get(f"val_{metric}", [])),
        )
        if values
    ]
    title = format_metric_name(metric)
    return Chart(
        key=f"history-{metric}",
        title=title[:1].upper() + title[1:],
        summary=" ".join(_summarize_series(one, unit) for one in series),
        unit=unit,
        across="epoch",
        at=[at + 1 for at in shown],
        labels=[f"epoch {at + 1}" for at in shown],
        series=series,
    )


def _make_charts_over_run(run: Run, key: str, title: str, unit: Unit, values: Sequence[float | None]) -> list[Chart]:
    """Make a chart of readings over optimizer steps, none where that is too little for a line.

    Over time, the first step would look like a long part of training while it is being compiled.
    """
    points = run.readings.points
    if sum(value is not None for value in values) < 2:
        return []
    series = Series(name=title.lower(), colour="--first", values=values)
    chart = Chart(
        key=key,
        title=title,
        summary=_summarize_series(series, unit),
        unit=unit,
        across="update",
        at=[point.update for point in points],
        labels=[f"step {point.update:,}, {_format_point(point)}" for point in points],
        series=[series],
    )
    return [chart]


def _list_moments(run: Run) -> list[dict[str, Any]]:
    """Find when it ran out of memory, and when it resumed after a stop."""
    named = [event for event in run.events if event.get("kind") in (EventKind.OUT_OF_MEMORY, EventKind.RESUMED)]
    timed = [(parse_time(event.get("time")), event) for event in named[:_MAX_MOMENTS]]
    return [
        {"at": run.readings.seconds_at(time), "name": event["kind"], "colour": "--alarm"}
        for time, event in timed
        if time is not None
    ]


def _make_limit_mark(limit_bytes: int) -> dict[str, Any]:
    return {"value": limit_bytes, "name": f"limit {format_bytes(limit_bytes)}", "colour": "--alarm"}


def _summarize_series(series: Series, unit: Unit) -> str:
    known = [value for value in series.values if value is not None]
    if not known:
        return f"{series.name}: no finite value."
    first, last = format_value(known[0], unit), format_value(known[-1], unit)
    low, high = format_value(min(known), unit), format_value(max(known), unit)
    name = series.name[:1].upper() + series.name[1:]
    return f"{name}: from {first} to {last}, lowest {low}, highest {high}."


def _format_point(point: Point) -> str:
    size = f", micro-batch {point.micro_batch}" if point.micro_batch else ""
    return f"{format_duration(point.seconds)}, epoch {point.epoch + 1}, batch {point.batch + 1}{size}"


def _format_moment(moment: Moment, number: int, length: int) -> str:
    where = ", ".join(part for part in (moment.layer, moment.phase) if part) or moment.name
    return f"{where} ({number + 1:,} of {length:,})"
