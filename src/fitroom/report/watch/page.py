"""A watch as one self-contained HTML page: no network, for phone and desktop, light and dark."""

from collections.abc import Sequence

from fitroom import __version__
from fitroom.report.shared.chart import Chart, Series, Unit
from fitroom.report.shared.templates import dump_script_json, hash_script, load_asset, load_chart_script, render
from fitroom.report.shared.words import format_duration
from fitroom.report.watch import words
from fitroom.units import format_bytes
from fitroom.watching.summary import Reading, WatchSummary


def render_watch_page(summary: WatchSummary, readings: Sequence[Reading]) -> str:
    """Return the whole page as text."""
    charts = make_charts(readings)
    script = load_chart_script()
    return render(
        "watch/page.html",
        script_hash=hash_script(script),
        style=load_asset("base.css") + load_asset("charts.css"),
        script=script,
        data=dump_script_json([chart.to_dict() for chart in charts]),
        title=words.format_headline(summary),
        facts=words.list_facts(summary),
        charts=charts,
        notes=words.list_notes(summary),
        version=__version__,
    )


def make_charts(readings: Sequence[Reading]) -> list[Chart]:
    """Make the charts of memory by device, of the host, and of the shares of time, where they are known."""
    limit_bytes = words.find_limit(readings)
    name = f"limit {format_bytes(limit_bytes)}"
    marks: list[dict[str, object]] = [{"value": limit_bytes, "name": name, "colour": "--alarm"}]
    charts = [
        _make_chart(
            f"memory-{device}",
            f"Memory of {device}",
            "bytes",
            readings,
            {
                "in use": [reading["devices"][device]["in_use_bytes"] for reading in readings],
                "peak since the reading before": [reading["devices"][device]["peak_bytes"] for reading in readings],
            },
            marks if limit_bytes else [],
        )
        for device in readings[-1]["devices"]
    ]
    host = {"host memory": [reading["host_bytes"] for reading in readings]}
    shares = {
        "waiting for input": [reading["input_wait"] for reading in readings],
        "GPU utilisation": [reading["utilization"] for reading in readings],
    }
    charts.append(_make_chart("host", "Memory of the host", "bytes", readings, host))
    charts.append(_make_chart("shares", "Shares of the time", "share", readings, shares))
    return [chart for chart in charts if chart.series]


def _make_chart(
    key: str,
    title: str,
    unit: Unit,
    readings: Sequence[Reading],
    values: dict[str, list[float | None]],
    marks: Sequence[dict[str, object]] = (),
) -> Chart:
    known = {name: each for name, each in values.items() if any(value is not None for value in each)}
    return Chart(
        key=key,
        title=title,
        summary=f"{title} at {len(readings)} readings.",
        unit=unit,
        across="seconds",
        at=[reading["seconds"] for reading in readings],
        labels=[f"{format_duration(reading['seconds'])}, step {reading['update']}" for reading in readings],
        series=[
            Series(name=name, colour=colour, values=each, shaded=name == "in use")
            for (name, each), colour in zip(known.items(), ("--first", "--second"), strict=False)
        ],
        marks=list(marks),
    )
