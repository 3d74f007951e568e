"""`fitroom trials`: several trainings of `fitroom train`, each in a process of its own, and their comparison."""

import sys
import webbrowser
from pathlib import Path
from typing import Any

import click

from fitroom.cli.option_types import Number, WholeNumber
from fitroom.cli.output import json_text
from fitroom.errors import FitroomError

_EPILOG = (
    "Progress goes to stderr, the comparison to stdout. Exit codes: 0 all trained; 1 some did not, or the input cannot "
    "work; 2 wrong usage; 130 stopped by Ctrl-C: the same command resumes."
)


@click.command(name="trials", epilog=_EPILOG)
@click.argument("sweep", type=click.Path(path_type=Path, dir_okay=False))
@click.option(
    "--folds",
    type=WholeNumber(min=2),
    metavar="N",
    help="Cross-validation: train each N times, each time with another N-th of the images held out.",
)
@click.option(
    "--folder",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where the runs go.  [default: runs/<name of the file>]",
)
@click.option(
    "--at-once",
    type=WholeNumber(min=1),
    metavar="N",
    help="The most trainings at once.  [default: as many as their `budget` allows; without one, one at a time]",
)
@click.option("--time-limit", type=Number(min=0, min_open=True), metavar="SECONDS", help="For each training.")
@click.option(
    "--again", type=click.Choice(["failed", "all"]), help="Carry out again those that failed before, or all of them."
)
@click.option("--json", "as_json", is_flag=True, help="Print the comparison as JSON.")
@click.option("--open", "opens", is_flag=True, help="Open the page of the comparison in a browser.")
def command(sweep: Path, folder: Path | None, folds: int | None, as_json: bool, opens: bool, **options: Any) -> None:
    """Carry out the trainings that SWEEP, a TOML file, describes, and compare them. One that fails does not stop the
    others, and a killed command resumes where it was.

    \b
    folder = "flowers"               # options of `fitroom train`
    epochs = 5
    [vary]                           # all combinations of these
    model = ["xception", "resnet50"]
    learning-rate = [0.001, 0.0001]

    \b
    fitroom trials sweep.toml
    fitroom trials sweep.toml --folds 5
    """
    from fitroom.classify.sweep import predict_bytes, read_sweep, train_once
    from fitroom.loops.trials.run import trials

    trainings = read_sweep(sweep)
    place = folder or Path("runs") / sweep.stem
    settings = [one for training in trainings for one in training.list_runs(place, folds)]
    runs = f"{len(settings)} runs" if len(settings) > 1 else "1 run"
    click.echo(f"{len(trainings)} trainings, {runs}, in {place}" if folds else f"{runs}, in {place}", err=True)
    table = trials(train_once, settings, place, device_bytes=predict_bytes, **options)
    page = _compare(table, place, as_json=as_json)
    if opens and page is not None and not webbrowser.open(page.resolve().as_uri()):
        click.echo("no browser could be opened", err=True)
    if table.failed:
        first = table.failed[0]
        raise FitroomError(
            f"{len(table.failed)} of {len(table)} runs did not finish; {first.settings['run_dir']} is the first: "
            f"{first.state}. {first.error}",
            hint=f"{first.log or place / 'trials.jsonl'} says more; --again failed carries them out again",
        )


def _compare(table: Any, place: Path, *, as_json: bool) -> Path | None:
    """Print the comparison of what was trained, and write its page. Returns the page; None where nothing was."""
    from rich.console import Console

    from fitroom.report.compare.groups import group_runs
    from fitroom.report.compare.page import PAGE_FILE, write_comparison
    from fitroom.report.compare.text import render_comparison
    from fitroom.runs.layout import RUN_FILE
    from fitroom.runs.run import open_run

    folders = [Path(row.settings["run_dir"]) for row in table]
    groups = group_runs(open_run(folder) for folder in folders if (folder / RUN_FILE).exists())
    page = write_comparison(groups, place / PAGE_FILE) if groups else None
    if as_json:
        found = {
            "trials": [row.to_dict() for row in table],
            "trainings": [group.to_dict() for group in groups],
            "page": str(page) if page else None,
        }
        click.echo(json_text(found))
    elif groups:
        Console(file=sys.stdout).print(render_comparison(groups))
        click.echo(f"page      {page}")
    return page
