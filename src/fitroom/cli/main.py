"""The command line: one file a command, loaded when it is used so that `--help` stays fast."""

import importlib
import os
import signal
import sys
import traceback
from typing import NoReturn

import click

from fitroom.cli.output import take_any_name
from fitroom.errors import FitroomError, nearest_names
from fitroom.version import __version__

COMMANDS = {
    "train": "A folder of pictures in, a trained classifier out.",
    "predict": "What a trained classifier makes of pictures.",
    "report": "The report of a run as one HTML page.",
    "estimate": "How much memory a training step takes, without running it.",
    "plan": "The fastest recipe that fits a card or a budget.",
    "segments": "Where a model can be cut, what recomputing saves and what it costs.",
    "run": "A training script as it stands, with model.fit that out-of-memory cannot stop.",
    "gpus": "The cards fitroom knows, and the ones in this machine.",
    "completion": "Completion of commands, models and cards in the shell.",
}


def _note_debug(ctx: click.Context, param: click.Parameter, wanted: bool) -> None:
    """Remember `--debug` where `main` finds it. `sys.argv` may have become a script's own by then."""
    if wanted:
        ctx.find_root().ensure_object(dict)["debug"] = True


_DEBUG = click.Option(
    ["--debug"], is_flag=True, expose_value=False, callback=_note_debug, help="Show the traceback of an error."
)


class _LazyGroup(click.Group):
    """Lists commands without importing them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(f"fitroom.cli.{name}").command
        if _DEBUG not in command.params:
            command.params.append(_DEBUG)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        # Newer versions of click look for the nearest, too, but among commands that are imported.
        nearest = [] if args[0] in COMMANDS or ctx.resilient_parsing else nearest_names(args[0], COMMANDS, count=1)
        if nearest:
            ctx.fail(f"No such command {args[0]!r}. Did you mean {nearest[0]!r}?")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="fitroom %(version)s")
@click.option("--debug", is_flag=True, expose_value=False, callback=_note_debug, help="Show the traceback of an error.")
def fitroom() -> None:
    """Train any Keras model in the GPU memory you have."""


def main() -> NoReturn:
    """Run the command line. Data goes to stdout, everything else to stderr.

    Exit codes: 0 done, 1 what was given cannot work, 2 wrong usage of the command line, 130 interrupted.
    """
    # Ended from outside, as by `kill`: leave as by Ctrl-C, taking processes and folders along.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    take_any_name()
    noted: dict[str, bool] = {}
    try:
        status = fitroom.main(prog_name="fitroom", standalone_mode=False, obj=noted)
    except click.ClickException as error:
        error.show()
        status = error.exit_code
    except click.Abort:
        click.echo("interrupted", err=True)
        status = 130
    except BrokenPipeError:
        # The reader left, as `| head` does: nothing more to say, and nothing to flush at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = 0
    except Exception as error:
        if noted.get("debug"):
            traceback.print_exc()  # with the hint in it
        else:
            report(error if isinstance(error, FitroomError) else _unexpected(error))
        status = 1
    sys.exit(status if isinstance(status, int) else 0)


def _unexpected(error: Exception) -> FitroomError:
    return FitroomError(
        f"{type(error).__name__}: {error}",
        hint="this was not foreseen; the same command with --debug shows where it happened",
    )


def report(error: FitroomError) -> None:
    """Print an error and its hint to stderr."""
    click.echo(f"{click.style('error:', fg='red', bold=True)} {error.message}", err=True)
    if error.hint:
        click.echo(f"\n{click.style('hint:', fg='cyan')} {error.hint}", err=True)
