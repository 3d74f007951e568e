"""`fitroom compare`: shows runs side by side."""

import sys
import webbrowser
from pathlib import Path

import click

from fitroom.cli import shared_options as shared
from fitroom.cli.completion import complete_runs
from fitroom.cli.output import json_text
from fitroom.cli.runs import find_run_folders
from fitroom.errors import InputError

_EPILOG = "The comparison goes to stdout. Exit codes: 0 compared; 1 there is no run in a folder; 2 wrong usage."


@click.command(name="compare", epilog=_EPILOG)
@click.argument(
    "runs", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="RUN...", shell_complete=complete_runs
)
@shared.file("--html", "Write the page there, too: one file, no network.", ".html")
@click.option(
    "--open", "opens", is_flag=True, help="Write the page, to compare.html unless --html is given, and open it."
)
@click.option("--json", "as_json", is_flag=True, help="Print the comparison as JSON.")
def command(runs: tuple[Path, ...], html: Path | None, opens: bool, as_json: bool) -> None:
    """Show the runs in the folders RUN side by side: the settings in which they differ, accuracy, memory and time. Of a
    folder that holds several runs, all are taken; folds of one training are shown together, with their spread.

    \b
    fitroom compare runs/a runs/b
    fitroom compare runs/sweep --html sweep.html
    """
    from fitroom.report.compare.groups import group_runs
    from fitroom.runs.run import open_run

    folders: dict[Path, None] = {}
    for place in runs:
        found = list(find_run_folders(place))
        if not found:
            missing = f"There is no run in {place}." if place.exists() else f"There is no folder {str(place)!r}."
            raise InputError(missing, hint="`fitroom runs` lists those in runs/; give their folders")
        folders |= dict.fromkeys(found)
    groups = group_runs(map(open_run, folders))
    if as_json:
        click.echo(json_text([group.to_dict() for group in groups]))
    else:
        from rich.console import Console

        from fitroom.report.compare.text import render_comparison

        Console(file=sys.stdout).print(render_comparison(groups))
    if html is None and not opens:
        return
    from fitroom.report.compare.page import PAGE_FILE, write_comparison

    page = write_comparison(groups, html or Path(PAGE_FILE))
    click.echo(f"page: {page}", err=True)
    if opens and not webbrowser.open(page.resolve().as_uri()):
        click.echo("no browser could be opened", err=True)
