"""`fitroom run`: runs a script with `model.fit` protected against out-of-memory."""

import importlib.util
import os
import runpy
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

import click

from fitroom.backends.choose import backend_before_keras
from fitroom.cli import processes
from fitroom.cli import shared_options as shared
from fitroom.cli.fresh_process import Beginning, say
from fitroom.cli.option_types import WholeNumber
from fitroom.distribution.selection import DeviceSelection
from fitroom.environment import DEVICES
from fitroom.errors import FitroomError, FreshStart, InputError, NeedsProcesses, OutOfMemoryError
from fitroom.recipe import Recipe

_EPILOG = (
    "Exit codes: the script's own; 1 it raised an error, or cannot be run; 2 wrong usage; 130 and 143 stopped by a "
    "signal."
)


@click.command(epilog=_EPILOG, context_settings={"allow_interspersed_args": False})
@click.option(
    "--micro-batch", type=WholeNumber(min=1), metavar="N", help="Start with micro-batches of at most N samples."
)
@click.option("--run-dir", metavar="FOLDER", help="Folder for checkpoints; the same command resumes after a kill.")
@shared.devices("Train on several devices")
@shared.backend("jax, tensorflow or torch; overrides KERAS_BACKEND and the script.", default="that of the script")
@click.option("-m", "is_module", is_flag=True, help="SCRIPT is the name of a module or package, as for `python -m`.")
@click.argument("script")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def command(
    ctx: click.Context,
    /,
    micro_batch: int | None,
    run_dir: str | None,
    devices: DeviceSelection | None,
    backend: str | None,
    is_module: bool,
    script: str,
    arguments: tuple[str, ...],
) -> None:
    """Run a Python script in which `model.fit` survives out-of-memory.

    The script needs no change: calls of Keras's `fit` are carried out by `fitroom.fit`. A batch that does not fit is
    trained in micro-batches, with the same effective batch.

    \b
      fitroom run train.py --epochs 10
      fitroom run -m package.train --epochs 10
      fitroom run --run-dir runs/a train.py   # the same command resumes
      fitroom run --devices all train.py      # each gets a share of every batch
    """
    beginning = Beginning()
    if is_module:
        sys.path.insert(0, os.getcwd())  # as `python -m` does
    _check_is_there(script, is_module=is_module)
    if not processes.is_launched():
        _note_misplaced(ctx, script, arguments)
    if devices is not None:
        _spread(devices, backend, beginning)
    from fitroom.cli.script_protection import ScriptProtection

    recipe = Recipe(micro_batch=micro_batch) if micro_batch else None
    must_restart = False
    protection = ScriptProtection(script, recipe=recipe, run_dir=run_dir, backend=backend, devices=devices)
    protection.start()
    try:
        if is_module:
            sys.argv = [script, *arguments]
            runpy.run_module(script, run_name="__main__", alter_sys=True)
        else:
            path = Path(script).absolute()  # `__file__` must stay valid when the script changes its folder
            sys.argv = [str(path), *arguments]
            sys.path.insert(0, str(path.resolve().parent))
            runpy.run_path(str(path), run_name="__main__")
    except OutOfMemoryError as error:
        if not beginning.can_restart(error):
            if error.fresh_start is not None and not error.fresh_start.is_kept:
                error.hint = _without_run_dir(error.fresh_start)
            raise
        say(beginning.reason(error))
        must_restart = True
    except NeedsProcesses:
        beginning.environment["KERAS_BACKEND"] = "torch"  # as the script has it
        os.environ["KERAS_BACKEND"] = "torch"
        _launch(devices or DeviceSelection(), beginning)
        return
    except FitroomError:
        raise
    except Exception as error:
        _print_traceback(error)
        sys.exit(1)
    if must_restart:
        beginning.restart()
    protection.end()


def _spread(devices: DeviceSelection, backend: str | None, beginning: Beginning) -> None:
    """Have the script run in a process for each device where PyTorch is known to be the backend."""
    processes.check_one_machine()
    if processes.is_launched():
        processes.join()
    elif backend_before_keras(backend) == "torch":
        _launch(devices, beginning)
        sys.exit(0)


def _launch(devices: DeviceSelection, beginning: Beginning) -> None:
    chosen = processes.choose_processes(devices)
    if len(chosen) == 1:
        os.environ[DEVICES] = chosen[0]
    kinds = f"{len(chosen)} processes, one on each of {', '.join(chosen)}" if len(chosen) > 1 else chosen[0]
    say(f"PyTorch trains in {kinds}; the first one prints and saves")
    processes.launch(chosen, beginning.words)


def _without_run_dir(fresh_start: FreshStart) -> str:
    from fitroom.train.fresh_start import IN_THE_WAY

    is_of_training = fresh_start.during == "training"
    smaller = f"--micro-batch {fresh_start.micro_batch} starts with less memory, and " if is_of_training else ""
    return f"{IN_THE_WAY}. {smaller}with --run-dir FOLDER it resumes from checkpoints in a fresh process by itself"


def _check_is_there(script: str, *, is_module: bool) -> None:
    if not is_module:
        if not Path(script).is_file() and not (Path(script) / "__main__.py").is_file():
            raise InputError(f"There is no script {script!r}.", hint="fitroom run train.py [its arguments]")
        return
    try:
        is_there = importlib.util.find_spec(script) is not None
    except ModuleNotFoundError as error:  # the package that should contain it
        if not f"{script}.".startswith(f"{error.name}."):
            raise
        is_there = False
    if not is_there:
        raise InputError(
            f"There is no module {script!r}.",
            hint="`fitroom run -m package.train` looks for package/train.py in this folder and in installed packages",
        )


def _note_misplaced(ctx: click.Context, script: str, arguments: Sequence[str]) -> None:
    """Say that a flag of this command, typed behind the script, is the script's."""
    own = {flag for param in ctx.command.params if isinstance(param, click.Option) for flag in param.opts}
    for word in dict.fromkeys(argument.partition("=")[0] for argument in arguments):
        if word.startswith("--") and word in own:
            say(f"{word} is passed to {script}; before {script} it would be fitroom's")


def _print_traceback(error: Exception) -> None:
    """Print the traceback of the script itself, as Python would."""
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename in (__file__, "<frozen runpy>", runpy.__file__):
        frames = frames.tb_next
    traceback.print_exception(error.with_traceback(frames))
