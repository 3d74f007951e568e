"""`fitroom report`: the report of a run, made anew."""

import webbrowser
from pathlib import Path

import click

from fitroom.cli.completing import complete_runs

_EPILOG = "The path goes to stdout. Exit codes: 0 written; 1 there is no run in the folder; 2 wrong usage."


@click.command(name="report", epilog=_EPILOG)
@click.argument("run", type=click.Path(path_type=Path), shell_complete=complete_runs)
@click.option("--open", "opens", is_flag=True, help="Show it in the browser.")
def command(run: Path, opens: bool) -> None:
    """Write report.html of the run in the folder RUN, finished or not, and print where it is.

    \b
    fitroom report runs/a
    fitroom report runs/a --open
    """
    from fitroom.report.run.report import write_report

    path = write_report(run)
    click.echo(str(path))
    if opens and not webbrowser.open(path.resolve().as_uri()):
        click.echo("no browser could be opened: open the file yourself", err=True)
