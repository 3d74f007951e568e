"""`fitroom train`: a folder of pictures in, a trained classifier out."""

import json
import shlex
import signal
import sys
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from fitroom.classify import records
from fitroom.classify.job import ensure_report
from fitroom.classify.options import TrainOptions, resume_command
from fitroom.cli import shared_options as shared
from fitroom.cli.backend_line import choose_and_say, say_backend
from fitroom.cli.completing import complete_models, complete_runs
from fitroom.cli.fresh_process import Beginning
from fitroom.cli.knob_names import knob_names
from fitroom.cli.picture_sizes import PixelsOrAuto
from fitroom.cli.run_place import choose_run, finished_words
from fitroom.cli.views import open_view
from fitroom.errors import FitroomError, InputError, OutOfMemoryError, RunInterrupted
from fitroom.keras_model.loading.source import check_model
from fitroom.keras_model.optimizers import check_optimizer
from fitroom.planning.request import ALLOWABLE, KEEPABLE
from fitroom.runs.layout import MODEL_FILE, REPORT_FILE

_EPILOG = (
    "Progress goes to stderr, what came of it to stdout. Exit codes: 0 trained; 1 what was given cannot work; 2 wrong "
    "usage; 130 stopped by Ctrl-C, 143 by SIGTERM, and the same command goes on."
)


@click.command(name="train", epilog=_EPILOG)
@click.argument("folder", required=False, type=click.Path())
@click.option(
    "--model",
    metavar="MODEL",
    default="xception",
    show_default=True,
    shell_complete=complete_models,
    help="A name of keras.applications, a .keras file, or file.py:function.",
)
@click.option(
    "--epochs",
    type=click.IntRange(min=1),
    default=10,
    show_default=True,
    metavar="N",
    help="Times through the pictures.",
)
@shared.batch_size("Pictures per optimizer step. It is never changed: what does not fit is cut or recomputed.")
@click.option(
    "--image-size",
    type=PixelsOrAuto(),
    metavar="PIXELS",
    help="Height and width of the pictures; or auto: the model's own, and smaller ones where nothing else fits.",
)
@click.option(
    "--weights",
    metavar="FROM",
    help="imagenet, none, or a file of weights.  [default: imagenet for a name of keras.applications]",
)
@click.option("--freeze", is_flag=True, help="Train the last layer alone.")
@click.option(
    "--unfreeze-after",
    type=click.IntRange(min=1),
    metavar="N",
    help="Train the last layer alone for N epochs, then all but the statistics of BatchNormalization.",
)
@shared.backend("jax, tensorflow or torch.")
@click.option("--budget", metavar="SIZE", help="Memory to train in: 8GiB, or a card.  [default: what is there]")
@shared.gpu("As if it were this card, such as 'RTX 3060'.")
@shared.micro_batch("The most pictures at once.  [default: as the plan has it]")
@knob_names("--keep", KEEPABLE, "What the plan leaves as it is")
@knob_names("--allow", ALLOWABLE, "What may change the task where nothing else fits")
@shared.prefer("pictures")
@shared.precision(
    "A Keras dtype policy: float32, mixed_bfloat16, mixed_float16; or auto: float32, or what the card does well.",
    "auto",
    default="auto",
    show_default=True,
)
@shared.jit
@shared.optimizer("Any of keras.optimizers.", default="adam", show_default=True)
@click.option(
    "--learning-rate",
    type=click.FloatRange(min=0, min_open=True),
    metavar="RATE",
    help="The highest; it warms up and falls along a cosine.  [default: Keras's own; a tenth of it when fine-tuning]",
)
@click.option(
    "--label-smoothing",
    type=click.FloatRange(0, 1, max_open=True),
    default=0.0,
    metavar="PART",
    help="How much of a label is not believed, such as 0.1.",
)
@click.option(
    "--early-stopping", type=click.IntRange(min=1), metavar="N", help="Stop after N epochs without a better one."
)
@click.option(
    "--class-weight", type=click.Choice(["balanced"]), help="Have every class count the same, however many pictures."
)
@click.option("--augment/--no-augment", default=True, show_default=True, help="Flip, zoom, shear, turn, recolour.")
@click.option(
    "--resize", type=click.Choice(["crop", "pad", "stretch"]), default="crop", show_default=True, help="To a square."
)
@click.option(
    "--validation",
    type=click.FloatRange(0, 1, max_open=True),
    default=0.2,
    show_default=True,
    metavar="PART",
    help="Held out to find the best epoch.",
)
@click.option(
    "--test",
    type=click.FloatRange(0, 1, max_open=True),
    default=0.0,
    show_default=True,
    metavar="PART",
    help="Held out to try the result on.",
)
@click.option(
    "--seed", type=click.IntRange(0, 2**32 - 1), default=0, show_default=True, metavar="N", help="Of everything random."
)
@click.option("--cache", type=click.Choice(["ram", "disk"]), help="Keep decoded pictures.")
@click.option("--cache-limit", default="4GiB", show_default=True, metavar="SIZE", help="The most that --cache takes.")
@click.option("--strict", is_flag=True, help="Stop at files that are no pictures instead of leaving them out.")
@click.option(
    "--workers", type=click.IntRange(min=1), metavar="N", help="Threads that decode.  [default: as many as cores]"
)
@shared.unsafe
@click.option(
    "--run-dir",
    metavar="FOLDER",
    shell_complete=complete_runs,
    help="Where all of it is kept.  [default: runs/<folder>-<model>]",
)
@click.option(
    "--resume",
    is_flag=True,
    help="Go on with the run in --run-dir, or with the latest unfinished one in runs/. A model that is code "
    "(--model file.py:function, --unsafe) has to be named again.",
)
@click.option("--json", "as_json", is_flag=True, help="JSON lines on stdout and nothing else there.")
@click.pass_context
def command(ctx: click.Context, /, resume: bool, as_json: bool, **flags: Any) -> None:
    """Train a classifier on FOLDER, which has a folder of pictures per class (or train/ val/ test/ above those, or is
    a CSV file of path,label). The fastest way that fits the memory is planned, and said with its reasons before it
    begins.

    \b
    fitroom train flowers/ --model xception --epochs 10
    fitroom train flowers/ --model resnet50 --batch-size 256 --budget 8GiB --weights none --run-dir runs/a
    fitroom train flowers/ --image-size auto --budget 2GiB --keep precision
    fitroom train --resume                  # the latest unfinished run goes on
    """
    beginning, must_restart = Beginning(), False
    given = {name: value for name, value in flags.items() if _was_typed(ctx, name)}
    run = choose_run(flags, given, resume=resume)
    if run.is_finished:
        report = ensure_report(run.folder)
        if as_json:
            click.echo(json.dumps({"event": "ended", "state": "finished"} | _places(run.folder, report)))
        else:
            click.echo(finished_words(run.folder, report))
        return
    options = TrainOptions(**run.options)
    check_model(options.model)
    check_optimizer(options.optimizer)
    if run.asked_backend:
        say_backend(run.asked_backend)
    else:
        choose_and_say(run.begun_on, why="as the run was begun")

    from fitroom.classify.job import TrainJob
    from fitroom.cli.output import stdout_for_results

    job = TrainJob(options=options, command=["fitroom", *sys.argv[1:]])
    with open_view(as_json=as_json) as view, stdout_for_results():
        if run.note:
            view.said(run.note)
        try:
            summary = job.run(view)
        except (RunInterrupted, KeyboardInterrupt) as stop:
            view.ended({"state": "interrupted", "run_dir": str(job.folder)})
            if records.read_job(run.folder) is not None:
                click.echo(f"to go on: {resume_command(run.folder, run.options)}", err=True)
            if isinstance(stop, KeyboardInterrupt):
                sys.exit(128 + signal.SIGINT)  # the view has said it, and click would say it again
            raise
        except OutOfMemoryError as error:
            if not beginning.can_restart(error):
                raise
            view.said(beginning.reason(error))
            must_restart = True
        except InputError as error:
            _speak_of_flags(error)
            raise
        else:
            # What people copy stands on stdout, once.
            view.ended(summary if as_json else summary | {"run_dir": None, "report": None})
    if must_restart:
        _, *words = shlex.split(resume_command(run.folder, run.options))  # with the code that the user has named
        beginning.restart([*words, *(["--json"] if as_json else [])])
    if not as_json:
        click.echo(_words(summary))
    if summary["report"] is None:
        raise FitroomError(
            f"The model is trained and saved, but {run.folder / REPORT_FILE} could not be written.",
            hint="make room on the disk, and run the same command again: nothing is trained again",
        )


def _places(folder: Path, report: Path) -> dict[str, str]:
    return {"run_dir": str(folder), "model": str(folder / MODEL_FILE), "report": str(report)}


def _speak_of_flags(error: InputError) -> None:
    """What `fit` says of its arguments, in the words of the command line."""
    error.message = error.message.replace("`run_dir`", "--run-dir")
    error.hint = error.hint and error.hint.replace("`run_dir`", "--run-dir")


def _was_typed(ctx: click.Context, name: str) -> bool:
    return ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE


def _words(summary: dict[str, Any]) -> str:
    """What came of it, for people and for copying."""
    metrics = summary["metrics"]
    lines = [
        f"accuracy  {metrics['accuracy']:.4f} on the {summary['split']} pictures",
        f"model     {summary['model']}",
        f"report    {summary['report'] or 'could not be written'}",
        f"predict   {_command('fitroom', 'predict', summary['run_dir'], 'picture.jpg')}",
    ]
    return "\n".join(lines)


def _command(*words: str | Path) -> str:
    return shlex.join(map(str, words))
