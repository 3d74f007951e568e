"""`fitroom train`: trains an image classifier on a folder of images."""

import json
import os
import shlex
import signal
import sys
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from fitroom.cards.nvml import live_gpus
from fitroom.classify import records
from fitroom.classify.job import ensure_report
from fitroom.classify.options import TrainOptions, resume_command
from fitroom.cli import shared_options as shared
from fitroom.cli.completion import complete_models, complete_runs
from fitroom.cli.fresh_process import Beginning
from fitroom.cli.option_types import DevicesChoice, Number, PixelsOrAuto, WholeNumber
from fitroom.cli.output import choose_backend_and_say, open_view, say_backend
from fitroom.cli.run_place import choose_run, describe_finished
from fitroom.cli.shared_options import knob_names
from fitroom.distribution.selection import DeviceSelection
from fitroom.distribution.shares import check_batch
from fitroom.errors import BackendError, FitroomError, OutOfMemoryError, RunInterrupted
from fitroom.keras_model.loading.source import check_model
from fitroom.keras_model.optimizers import check_optimizer
from fitroom.planning.request import ALLOWABLE, KEEPABLE
from fitroom.runs.layout import MODEL_FILE, REPORT_FILE

_EPILOG = (
    "Progress goes to stderr, the result to stdout. Exit codes: 0 trained; 1 the input cannot be used; 2 wrong usage; "
    "130 stopped by Ctrl-C, 143 by SIGTERM: the same command with --run-dir, or --resume, resumes the run."
)


def _check_devices(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """The selection as it is stored with the run, checked."""
    return None if value is None else str(DevicesChoice().convert(value, param, ctx))


def _check_contradictions(given: dict[str, Any], *, resume: bool) -> None:
    """Refuse flags of which one would do nothing beside the other."""
    if given.get("freeze") and given.get("unfreeze_after") is not None:
        raise click.UsageError("--freeze trains only the last layer to the end: leave it or --unfreeze-after out")
    if given.get("fold") is not None and "validation" in given:
        raise click.UsageError("--fold says which images are held out: leave --validation out")
    if "cache_limit" in given and "cache" not in given and not resume:
        raise click.UsageError("--cache-limit is of --cache: add --cache ram or --cache disk")


def _check_engine(options: TrainOptions) -> None:
    """Raise an error for what several devices cannot do, before images are read."""
    selection = DeviceSelection.of(options.devices or "all")
    if selection.count is not None and selection.count > 1:
        check_batch(options.batch_size, selection.count)
    if os.environ.get("KERAS_BACKEND") == "torch" and len(live_gpus()) != 1:
        raise BackendError(
            "`fitroom train` uses several devices on JAX and TensorFlow. Received: the PyTorch backend, on which each "
            "device needs a process of its own.",
            hint="--backend jax; or `fitroom run --devices all train.py` with a script of your own",
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
    type=WholeNumber(min=1),
    default=10,
    show_default=True,
    metavar="N",
    help="Passes over the training images.",
)
@shared.batch_size(
    "Images per optimizer step, never changed: a batch that does not fit is trained in micro-batches, "
    "or with activations recomputed."
)
@click.option(
    "--image-size",
    type=PixelsOrAuto(),
    metavar="PIXELS",
    help="Height and width of the images; or auto: the model's own size, or a smaller one where nothing else fits.",
)
@click.option(
    "--weights",
    metavar="FROM",
    help="Initial weights: imagenet, none, or a file.  [default: imagenet for a name of keras.applications, else the "
    "model's own]",
)
@click.option("--freeze", is_flag=True, help="Train only the last layer.")
@click.option(
    "--unfreeze-after",
    type=WholeNumber(min=1),
    metavar="N",
    help="Train only the last layer for N epochs, then all layers except BatchNormalization.",
)
@shared.backend("jax, tensorflow or torch.")
@click.option(
    "--budget",
    metavar="SIZE",
    help="Memory to train in, set as the framework's limit: a size, e.g. 8GiB, or a card's name for the memory of that "
    "card.  [default: what is available]",
)
@shared.gpu(
    "The card to plan for, e.g. 'RTX 3060': its speed and, without --budget, its memory. With both, --budget is the "
    "limit.  [default: this machine's, else a T4]"
)
@shared.micro_batch("Largest micro-batch.  [default: chosen by the plan]")
@knob_names("--keep", KEEPABLE, "Settings that the plan does not change")
@knob_names("--allow", ALLOWABLE, "Settings that change the task and may be changed where nothing else fits")
@shared.prefer("images")
@shared.precision(
    "A Keras dtype policy: float32, mixed_bfloat16, mixed_float16; or auto: the fastest on the card.",
    "auto",
    default="auto",
    show_default=True,
)
@shared.jit
@shared.no_corrections
@shared.optimizer("A name of keras.optimizers.", default="adam", show_default=True)
@click.option(
    "--learning-rate",
    type=Number(min=0, min_open=True),
    metavar="RATE",
    help="Peak learning rate, with warm-up and cosine decay.  [default: Keras's; a tenth of it for fine-tuning]",
)
@click.option(
    "--label-smoothing",
    type=Number(0, 1, max_open=True),
    default=0.0,
    metavar="SHARE",
    help="Label smoothing, e.g. 0.1.",
)
@click.option("--early-stopping", type=WholeNumber(min=1), metavar="N", help="Stop after N epochs without improvement.")
@click.option(
    "--class-weight",
    type=click.Choice(["balanced"]),
    help="Weight the classes so that each counts the same, however many images it has.",
)
@click.option(
    "--augment/--no-augment", default=True, show_default=True, help="Random flips, zoom, shear, rotation and colours."
)
@click.option(
    "--resize",
    type=click.Choice(["crop", "pad", "stretch"]),
    default="crop",
    show_default=True,
    help="How images are made square.",
)
@click.option(
    "--validation",
    type=Number(0, 1, max_open=True),
    default=0.2,
    show_default=True,
    metavar="SHARE",
    help="Share of the images held out to find the best epoch.",
)
@click.option(
    "--test",
    type=Number(0, 1, max_open=True),
    default=0.0,
    show_default=True,
    metavar="SHARE",
    help="Share of the images held out to test the result.",
)
@click.option(
    "--fold",
    metavar="K/N",
    help="Cross-validation: hold out the K-th of N folds, e.g. 2/5; `fitroom trials --folds N` trains all of them.",
)
@click.option(
    "--seed",
    type=WholeNumber(0, 2**32 - 1),
    default=0,
    show_default=True,
    metavar="N",
    help="Seed of all random generators.",
)
@click.option("--cache", type=click.Choice(["ram", "disk"]), help="Cache decoded images in memory or on disk.")
@click.option("--cache-limit", default="4GiB", show_default=True, metavar="SIZE", help="Largest size of the cache.")
@click.option("--strict", is_flag=True, help="Refuse files that are not images instead of skipping them.")
@click.option(
    "--workers", type=WholeNumber(min=1), metavar="N", help="Threads that decode images.  [default: one per core]"
)
@click.option(
    "--devices",
    metavar="all|N|0,1",
    callback=_check_devices,
    help="Train on several devices: all, the first N, or some by number. Each gets a share of every batch. JAX and "
    "TensorFlow.",
)
@shared.unsafe
@click.option(
    "--run-dir",
    metavar="FOLDER",
    shell_complete=complete_runs,
    help="The run folder.  [default: runs/<folder>-<model>]",
)
@click.option(
    "--resume",
    is_flag=True,
    help="Resume the run in --run-dir, or the latest unfinished one in runs/. A model that is code "
    "(--model file.py:function, --unsafe) must be given again.",
)
@click.option("--json", "as_json", is_flag=True, help="Print only JSON lines to stdout.")
@click.pass_context
def command(ctx: click.Context, /, resume: bool, as_json: bool, **flags: Any) -> None:
    """Train an image classifier on FOLDER: one folder of images per class, or train/, val/ and test/ with such folders
    inside; or a CSV file with the lines path,label. The fastest recipe that fits the memory is planned, and shown with
    its reasons before training starts.

    \b
    fitroom train flowers/ --model xception --epochs 10
    fitroom train flowers/ --model resnet50 --batch-size 256 --budget 8GiB
    fitroom train flowers/ --weights none --run-dir runs/a
    fitroom train flowers/ --image-size auto --budget 2GiB --keep precision
    fitroom train --resume                  # resume the latest unfinished run
    """
    beginning, must_restart = Beginning(), False
    given = {name: value for name, value in flags.items() if _was_typed(ctx, name)}
    _check_contradictions(given, resume=resume)
    run = choose_run(flags, given, resume=resume)
    if run.is_finished:
        report = ensure_report(run.folder)
        if as_json:
            click.echo(json.dumps({"event": "ended", "state": "finished"} | _places(run.folder, report)))
        else:
            click.echo(describe_finished(run.folder, report))
        return
    options = TrainOptions(**run.options)
    check_model(options.model)
    check_optimizer(options.optimizer)
    if run.asked_backend:
        say_backend(run.asked_backend)
    else:
        choose_backend_and_say(run.started_on, why="as the run was started")

    if options.devices is not None:
        _check_engine(options)
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
                click.echo(f"to resume: {resume_command(run.folder, run.options)}", err=True)
            if isinstance(stop, KeyboardInterrupt):
                sys.exit(128 + signal.SIGINT)  # the view has said it; click would say it again
            raise
        except OutOfMemoryError as error:
            if not beginning.can_restart(error):
                raise
            view.said(beginning.reason(error))
            must_restart = True
        else:
            # The paths are printed to stdout below, and not twice.
            view.ended(summary if as_json else summary | {"run_dir": None, "report": None})
    if must_restart:
        _, *words = shlex.split(resume_command(run.folder, run.options))  # with the user's code, if any
        beginning.restart([*words, *(["--json"] if as_json else [])])
    if not as_json:
        click.echo(_words(summary))
    if summary["report"] is None:
        raise FitroomError(
            f"The model is trained and saved, but {run.folder / REPORT_FILE} could not be written.",
            hint="free disk space, and run the same command again: nothing is trained again",
        )


def _places(folder: Path, report: Path) -> dict[str, str]:
    return {"run_dir": str(folder), "model": str(folder / MODEL_FILE), "report": str(report)}


def _was_typed(ctx: click.Context, name: str) -> bool:
    return ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE


def _words(summary: dict[str, Any]) -> str:
    """The result for people, with a command to copy."""
    metrics = summary["metrics"]
    lines = [
        f"accuracy  {metrics['accuracy']:.4f} on {summary['split']}",
        f"model     {summary['model']}",
        f"report    {summary['report'] or 'could not be written'}",
        f"predict   {_command('fitroom', 'predict', summary['run_dir'], 'image.jpg')}",
    ]
    return "\n".join(lines)


def _command(*words: str | Path) -> str:
    return shlex.join(map(str, words))
