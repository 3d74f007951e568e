"""`fitroom report`: writes the report of a run."""

import webbrowser
from pathlib import Path

import click

from fitroom.cli.completion import complete_runs

_EPILOG = "The path is printed to stdout. Exit codes: 0 written; 1 there is no run in the folder; 2 wrong usage."


@click.command(name="report", epilog=_EPILOG)
@click.argument("run", type=click.Path(path_type=Path), shell_complete=complete_runs)
@click.option("--open", "opens", is_flag=True, help="Open the report in a browser.")
def command(run: Path, opens: bool) -> None:
    """Write report.html for the run in the folder RUN, finished or not, and print its path.

    \b
    fitroom report runs/a
    fitroom report runs/a --open
    """
    from fitroom.report.run.report import write_report

    path = write_report(run)
    click.echo(str(path))
    if opens and not webbrowser.open(path.resolve().as_uri()):
        click.echo("no browser could be opened", err=True)
