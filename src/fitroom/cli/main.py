"""The entry point of the command line. Commands are imported when they are used, so that `--help` stays fast."""

import gc
import importlib
import os
import re
import signal
import sys
import traceback
from collections.abc import Mapping
from typing import Any, NoReturn

import click

from fitroom.cli.output import accept_any_name
from fitroom.errors import FitroomError, OutOfMemoryError, nearest_names
from fitroom.version import __version__

COMMANDS = {
    "train": "Train an image classifier on a folder of images.",
    "trials": "Train several settings or folds, each in a process of its own, and compare them.",
    "runs": "List the runs in a folder.",
    "compare": "Show runs side by side.",
    "predict": "Classify images with a trained classifier.",
    "report": "Write the report of a run as one HTML page.",
    "estimate": "Estimate the memory of a training step without running it.",
    "plan": "Find the fastest recipe that fits a card or a memory budget.",
    "segments": "Show the segments of a model: what recomputing them saves and costs.",
    "lean": "Show what a smaller model would save, change by change.",
    "compress": "Prune a trained classifier, fine-tune it, and compare before and after.",
    "export": "Export a trained classifier to ONNX, LiteRT, SavedModel, OpenVINO or PyTorch.",
    "kernels": "Show which layers fused kernels serve, and what that saves.",
    "run": "Run a training script with model.fit protected against out-of-memory.",
    "doctor": "Check whether training runs on the GPU, and whether the input keeps up.",
    "leaks": "Find out whether a loop's memory grows from round to round, and why.",
    "explain": "Explain an out-of-memory error from the log of a crash.",
    "gpus": "List the cards that fitroom knows, and those in this machine.",
    "completion": "Print a script for completion in the shell.",
}


def _note_debug(ctx: click.Context, param: click.Parameter, wanted: bool) -> None:
    """Store `--debug` where `main` finds it: `sys.argv` may be that of a script by then."""
    if wanted:
        ctx.find_root().ensure_object(dict)["debug"] = True


_DEBUG = click.Option(
    ["--debug"], is_flag=True, expose_value=False, callback=_note_debug, help="Show the traceback of an error."
)


_OF_FUNCTIONS = ("image_size", "batch_size", "classes")
"""Options that errors do not mean by these names: a user's function may have such parameters."""


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
        # Newer versions of click suggest the nearest, too, but only among commands that are imported.
        nearest = [] if args[0] in COMMANDS or ctx.resilient_parsing else nearest_names(args[0], COMMANDS, count=1)
        if nearest:
            ctx.fail(f"No such command {args[0]!r}. Did you mean {nearest[0]!r}?")
        name, command, rest = super().resolve_command(ctx, args)
        options = [param for param in command.params if isinstance(param, click.Option)] if command else []
        flags = {option.name: max(option.opts, key=len) for option in options if option.name not in _OF_FUNCTIONS}
        ctx.find_root().ensure_object(dict)["flags"] = flags
        return name, command, rest

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

    Exit codes: 0 done, 1 the input cannot be used, 2 wrong usage of the command line, 130 interrupted.
    """
    # On SIGTERM exit as on Ctrl-C, so that child processes end and temporary folders are removed.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    accept_any_name()
    noted: dict[str, Any] = {}
    try:
        status = fitroom.main(prog_name="fitroom", standalone_mode=False, obj=noted)
    except click.ClickException as error:
        error.show()
        status = error.exit_code
    except click.Abort:
        click.echo("interrupted", err=True)
        status = 130
    except BrokenPipeError:
        # The reader is gone, as with `| head`: nothing more to write, and nothing to flush at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = 0
    except Exception as error:
        if noted.get("debug"):
            traceback.print_exc()  # with the hint in it
        else:
            report(error if isinstance(error, FitroomError) else _unexpected(error), noted.get("flags", {}))
        status = 1
    finally:
        # A Ctrl-C within an `exec` of text, as in the import of a named tuple, leaves a mark in Python, by which
        # `python -m fitroom` would end by the signal and not with our exit code. Another `exec` takes the mark away.
        exec("")
        # Frameworks make half a million objects that stay: at its end Python would go through all of them, for seconds
        # in which the answer is shown and the prompt is not back.
        gc.freeze()
    sys.exit(status if isinstance(status, int) else 0)


def _unexpected(error: Exception) -> FitroomError:
    return FitroomError(
        f"{type(error).__name__}: {error}",
        hint="this is unexpected; the same command with --debug shows the traceback",
    )


def report(error: FitroomError, flags: Mapping[str, str]) -> None:
    """Print an error and its hint to stderr. Arguments of Python named in them become flags of the command."""

    def name_flags(text: str) -> str:
        return re.sub(r"`(\w+)`", lambda match: flags.get(match[1], match[0]), text)

    click.echo(f"{click.style('error:', fg='red', bold=True)} {name_flags(error.message)}", err=True)
    if isinstance(error, OutOfMemoryError) and error.explanation is not None:
        from rich.console import Console

        click.echo(err=True)
        Console(stderr=True).print(error.explanation)
    if error.hint:
        click.echo(f"\n{click.style('hint:', fg='cyan')} {name_flags(error.hint)}", err=True)
