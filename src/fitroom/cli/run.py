"""`fitroom run`: a script as it stands, with `model.fit` that out-of-memory cannot stop."""

import runpy
import sys
import traceback
from pathlib import Path

import click

from fitroom.errors import FitroomError, InputError
from fitroom.recipe import Recipe

_EPILOG = (
    "Exit codes: the script's own; 1 it raised, or cannot be trained; 2 wrong usage; 130 and 143 stopped by a signal."
)


@click.command(epilog=_EPILOG, context_settings={"allow_interspersed_args": False})
@click.option("--micro-batch", type=click.IntRange(min=1), metavar="N", help="The most samples at once from the start.")
@click.option("--run-dir", metavar="FOLDER", help="Keep checkpoints here; the same command goes on after a kill.")
@click.argument("script", type=click.Path(path_type=Path))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def command(micro_batch: int | None, run_dir: str | None, script: Path, arguments: tuple[str, ...]) -> None:
    """Run a Python script in which `model.fit` survives out-of-memory.

    Nothing in it has to change: Keras's `fit` is served by `fitroom.fit`. Where a batch does not fit, it is cut into
    micro-batches and trained to the same result.

    \b
      fitroom run train.py --epochs 10
      fitroom run --run-dir runs/a train.py        # the same again goes on where it was killed
    """
    if not script.is_file():
        raise InputError(f"There is no script {str(script)!r}.", hint="fitroom run train.py [its arguments]")
    from fitroom.train.protect import serve, when_keras_is_imported

    recipe = Recipe(micro_batch=micro_batch) if micro_batch else None
    when_keras_is_imported(lambda: serve(recipe=recipe, run_dir=run_dir))
    click.echo(f"fitroom: running {script} with model.fit protected against out-of-memory", err=True)
    script = script.absolute()  # `__file__` outlives a change of folder
    sys.argv = [str(script), *arguments]
    sys.path.insert(0, str(script.resolve().parent))
    try:
        runpy.run_path(str(script), run_name="__main__")
    except FitroomError:
        raise
    except Exception as error:
        _print_as_python_would(error, script)
        sys.exit(1)


def _print_as_python_would(error: Exception, script: Path) -> None:
    """The script's own traceback, from its first line on."""
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename != str(script):
        frames = frames.tb_next
    is_unreadable = isinstance(error, SyntaxError) and error.filename == str(script)  # none of its lines was run
    if frames is None and not is_unreadable:
        frames = error.__traceback__
    traceback.print_exception(error.with_traceback(frames))
