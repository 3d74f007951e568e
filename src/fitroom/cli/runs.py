"""`fitroom runs`: lists the runs in a folder."""

import sys
from collections.abc import Iterator
from pathlib import Path

import click

from fitroom.cli.output import json_text
from fitroom.cli.run_place import ROOT
from fitroom.errors import FitroomError, InputError, message_of
from fitroom.runs.layout import CHECKPOINTS, RUN_FILE
from fitroom.runs.run import Run, open_run

_DEEPEST = 4
_EPILOG = "The list goes to stdout. Exit codes: 0 listed; 1 there is no such folder; 2 wrong usage."


@click.command(name="runs", epilog=_EPILOG)
@click.argument("folder", type=click.Path(path_type=Path), default=ROOT)
@click.option("--json", "as_json", is_flag=True, help="Print the list as JSON.")
def command(folder: Path, as_json: bool) -> None:
    """List the runs below FOLDER, which is runs/ unless given, the latest first: how each stands, what it trains, its
    accuracy, memory and time.

    \b
    fitroom runs
    fitroom runs runs/sweep --json
    """
    if not folder.is_dir():
        raise InputError(
            f"There is no folder {str(folder)!r}.",
            hint="`fitroom train` makes runs/; give another folder if yours differs",
        )
    runs = sorted(_read_runs(folder), key=lambda run: str(run.facts.get("begun", "")), reverse=True)
    if as_json:
        from fitroom.report.compare.groups import Group

        click.echo(
            json_text([Group(str(run.path), (run,)).to_dict() | {"begun": run.facts.get("begun")} for run in runs])
        )
    elif runs:
        from rich.console import Console

        from fitroom.report.compare.text import render_runs

        Console(file=sys.stdout).print(render_runs(runs))
    else:
        click.echo(f"there are no runs in {folder}", err=True)


def _read_runs(folder: Path) -> Iterator[Run]:
    """The runs in a folder and below it. One that cannot be read is said, and left out."""
    for place in find_run_folders(folder):
        try:
            yield open_run(place)
        except FitroomError as error:
            click.echo(f"left out: {message_of(error)}", err=True)


def find_run_folders(folder: Path, depth: int = 0) -> Iterator[Path]:
    """The run folders in a folder, itself included; what lies within a run is not looked at."""
    if (folder / RUN_FILE).is_file():
        yield folder
        return
    try:
        inner = sorted(path for path in folder.iterdir() if path.is_dir() and not path.is_symlink())
    except OSError:
        return
    for path in inner if depth < _DEEPEST else ():
        if not path.name.startswith(".") and path.name != CHECKPOINTS:
            yield from find_run_folders(path, depth + 1)
