"""`fitroom doctor`: checks the machine, or the speed of the input."""

import sys
from pathlib import Path

import click
from click.core import ParameterSource

from fitroom.checks.finding import Diagnosis
from fitroom.cli import shared_options as shared
from fitroom.cli.completion import complete_models
from fitroom.cli.output import choose_backend_and_say, json_text, progress, stdout_for_results
from fitroom.errors import InputError

_EPILOG = (
    "Exit codes: 0 training runs on the GPU, or the machine has none; 1 there is a GPU and training on it will not "
    "work, or the input cannot work; 2 wrong usage. With --require-gpu a machine without a GPU is 1, too. Warnings, a "
    "slow input among them, leave it at 0."
)


_OF_INPUT = {"model": "--model", "batch_size": "--batch-size", "image_size": "--image-size"}


@click.command(name="doctor", epilog=_EPILOG)
@shared.backend("jax, tensorflow or torch.")
@click.option("--require-gpu", is_flag=True, help="Exit with 1 where training would run on the CPU, for scripts.")
@click.option("--data", metavar="SOURCE", help="Time this input: a folder of images, or file.py:function.")
@click.option(
    "--model", metavar="MODEL", help="Time the step of this model beside --data.", shell_complete=complete_models
)
@shared.batch_size("Samples per batch, of a folder or arrays.")
@shared.image_size
@click.option(
    "--run-dir", default="runs", metavar="FOLDER", help="Where checkpoints will be, for the room on its disk."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object to stdout.")
@click.pass_context
def command(
    ctx: click.Context,
    /,
    backend: str | None,
    require_gpu: bool,
    data: str | None,
    model: str | None,
    batch_size: int,
    image_size: int | None,
    run_dir: str,
    as_json: bool,
) -> None:
    """Check this machine: driver, card, backend, memory, versions; each problem with the command that fixes it.

    With --data, time the input instead: decoding, augmentation, transfer and the step of --model apart.

    \b
    fitroom doctor
    fitroom doctor --backend torch --json
    fitroom doctor --data flowers/ --model xception --batch-size 64
    fitroom doctor --data train.py:make_dataset --model train.py:make_model
    """
    typed = [name for name in _OF_INPUT if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE]
    if data is None and typed:
        raise InputError(
            f"Without --data no input is timed. Received: {', '.join(_OF_INPUT[name] for name in typed)}.",
            hint="fitroom doctor --data flowers/ --model xception",
        )
    if data is not None and ctx.get_parameter_source("run_dir") is ParameterSource.COMMANDLINE:
        raise InputError(
            "--run-dir is for checking the machine. Received: --data, which times the input instead.",
            hint="leave one of the two out",
        )
    if data is None:
        from fitroom.checks.diagnose import diagnose

        with progress() as say:
            diagnosis = diagnose(backend, run_dir=Path(run_dir), say=say)
    else:
        from fitroom.checks.input_timing import check_named_input

        name = choose_backend_and_say(backend)
        with progress() as say, stdout_for_results():
            findings = check_named_input(data, model=model, batch_size=batch_size, image_size=image_size, say=say)
        diagnosis = Diagnosis(backend=name, findings=tuple(findings))
    if as_json:
        click.echo(json_text(diagnosis.to_dict()))
    else:
        from rich.console import Console

        Console().print(diagnosis)
    if not diagnosis.is_ok or (require_gpu and not diagnosis.uses_gpu):
        sys.exit(1)
