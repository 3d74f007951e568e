"""Runs side by side as one self-contained HTML page: no network, light and dark, screen and paper."""

from collections.abc import Sequence
from pathlib import Path

from fitroom import __version__
from fitroom.errors import InputError
from fitroom.files.durable import open_atomic
from fitroom.report.compare.groups import Group
from fitroom.report.compare.words import (
    format_accuracy,
    format_headline,
    format_memory,
    format_range,
    format_time,
    list_figures,
    order_groups,
)
from fitroom.report.run.sections import Bar, Tile
from fitroom.report.run.words import format_metric_name, is_share
from fitroom.report.shared.chart import Chart, Series, Unit, format_value
from fitroom.report.shared.palette import GROUP_COLOURS
from fitroom.report.shared.templates import dump_script_json, hash_script, load_asset, load_chart_script, render
from fitroom.report.shared.words import format_count

PAGE_FILE = "compare.html"


def write_comparison(groups: Sequence[Group], path: Path) -> Path:
    """Write the page of some groups; returns its path."""
    # The name of a folder may hold bytes that are no text.
    page = render_comparison_page(groups).encode("utf-8", "backslashreplace")
    try:
        with open_atomic(path) as file:
            file.write(page)
    except OSError as error:
        raise InputError(
            f"The page {path} cannot be written: {error.strerror or error}.",
            hint="give a place where you may write, on a disk with room",
        ) from error
    return path


def render_comparison_page(groups: Sequence[Group]) -> str:
    """Return the whole page as text, the most accurate group first."""
    ranked = order_groups(groups)
    charts = make_charts(ranked)
    script = load_chart_script()
    figures = list_figures(ranked)
    num_runs = sum(len(group.runs) for group in groups)
    title = f"{format_count(len(groups), 'training')} compared"
    title += f", {format_count(num_runs, 'run')}" if num_runs > len(groups) else ""
    return render(
        "compare/page.html",
        script_hash=hash_script(script),
        style=load_asset("base.css") + load_asset("charts.css"),
        script=script,
        data=dump_script_json([chart.to_dict() for chart in charts]),
        title=title,
        headline=format_headline(ranked).replace(" ± ", "\N{NO-BREAK SPACE}± ").replace(" %", "\N{NO-BREAK SPACE}%"),
        tiles=list_tiles(ranked),
        heads=["training", *figures],
        rows=[[group.name, *(texts[at] for texts in figures.values())] for at, group in enumerate(ranked)],
        charts=charts,
        num_left_out=max(0, len(ranked) - len(GROUP_COLOURS)) if charts else 0,
        bars=list_bars(ranked),
        ranges=[(group.name, said) for group in ranked if (said := format_range(group.accuracy))],
        folders=[(group.name, [str(run.path) for run in group.runs]) for group in ranked],
        version=__version__,
    )


def list_tiles(groups: Sequence[Group]) -> list[Tile]:
    """The best of each: accuracy, memory, time. `groups` has the most accurate first."""
    tiles = []
    if groups and (spread := groups[0].accuracy):
        tiles.append(
            Tile(name="best accuracy", figure=format_accuracy(spread), meaning=groups[0].name, share=spread.mean)
        )
    known = [group for group in groups if group.peak_bytes is not None]
    if least := min(known, key=lambda group: group.peak_bytes or 0, default=None):
        tiles.append(Tile(name="least memory", figure=format_memory(least), meaning=least.name))
    timed = [group for group in groups if group.seconds is not None and group.state == "finished"]
    if first := min(timed, key=lambda group: group.seconds.mean if group.seconds else 0, default=None):
        tiles.append(Tile(name="shortest time", figure=format_time(first.seconds), meaning=first.name))
    return tiles


def list_bars(groups: Sequence[Group]) -> list[tuple[str, list[Bar]]]:
    """Bars of accuracy, memory and time, each with a heading; those of which nothing is known are left out."""

    def make(values: list[tuple[str, float | None, str]]) -> list[Bar]:
        return [Bar(name=name, value=value, text=text, colour="--first") for name, value, text in values if value]

    found = {
        "Accuracy on held-out images": make(
            [(g.name, g.accuracy.mean if g.accuracy else None, format_accuracy(g.accuracy)) for g in groups]
        ),
        "Peak memory": make([(g.name, g.peak_bytes, format_memory(g)) for g in groups]),
        "Time of a run": make(
            [(g.name, g.seconds.mean if g.seconds else None, format_time(g.seconds)) for g in groups]
        ),
    }
    return [(heading, bars) for heading, bars in found.items() if bars]


def make_charts(groups: Sequence[Group]) -> list[Chart]:
    """A chart for each metric by epoch, with a line for each of the first few groups: validation where it is known."""
    shown = groups[: len(GROUP_COLOURS)]
    known = dict.fromkeys(name for group in shown for run in group.runs for name in run.history)
    bases = dict.fromkeys(name.removeprefix("val_") for name in known if "learning_rate" not in name)
    metrics = [f"val_{base}" if f"val_{base}" in known else base for base in bases]
    # Accuracy first, which is what most look for.
    ordered = sorted(metrics, key=lambda name: not is_share(name))
    return [chart for metric in ordered if (chart := _make_chart(shown, metric))]


def _make_chart(groups: Sequence[Group], metric: str) -> Chart | None:
    epochs = max((group.num_epochs for group in groups), default=0)
    series = []
    for group, colour in zip(groups, GROUP_COLOURS, strict=False):
        values = group.average_history(metric)
        if any(value is not None for value in values):
            padded = [*values, *[None] * (epochs - len(values))]
            series.append(Series(name=group.name, colour=colour, values=padded))
    if not series:
        return None
    unit: Unit = "share" if is_share(metric) else "number"
    where = "validation" if metric.startswith("val_") else "training"
    title = format_metric_name(metric)
    several = ", mean over the runs" if any(len(group.runs) > 1 for group in groups) else ""
    return Chart(
        key=f"compare-{metric}",
        title=f"{title[:1].upper()}{title[1:]} in {where}{several}",
        summary=" ".join(f"{one.name} ends at {format_value(_last(one.values), unit)}." for one in series),
        unit=unit,
        across="epoch",
        at=[epoch + 1 for epoch in range(epochs)],
        labels=[f"epoch {epoch + 1}" for epoch in range(epochs)],
        series=series,
    )


def _last(values: Sequence[float | None]) -> float | None:
    return next((value for value in reversed(values) if value is not None), None)
