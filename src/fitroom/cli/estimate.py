"""`fitroom estimate`: the memory of a training step, without running it."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from fitroom.activity import activity
from fitroom.cli import shared_options as shared
from fitroom.cli.completion import complete_models
from fitroom.cli.option_types import BatchSizes, WholeNumber
from fitroom.cli.output import choose_backend_and_say, progress, stdout_for_results
from fitroom.distribution.cards import MOST_CARDS
from fitroom.errors import FitroomError
from fitroom.recipe import Recipe

ALL = "all"
_EPILOG = (
    "Results go to stdout, everything else to stderr. Exit codes: 0 estimated, whether it fits or not; 1 the input "
    "cannot be used, or with --check a step does not fit; 2 wrong usage."
)


_OF_TRAINING = {
    "optimizer": "--optimizer",
    "micro_batch": "--micro-batch",
    "remat": "--remat",
    "keras_accumulation": "--accumulate",
}


@click.command(name="estimate", epilog=_EPILOG)
@click.argument("model", shell_complete=complete_models)
@shared.config
@click.option(
    "--batch-size",
    type=BatchSizes(),
    default="32",
    show_default=True,
    metavar="N[,N...]",
    help="Samples per optimizer step; several sizes give a table.",
)
@shared.image_size
@shared.sequence_length
@shared.classes
@shared.backend("jax, tensorflow, torch, or all.", ALL)
@shared.gpu("The card, e.g. 'RTX 3060'.  [default: this machine's, else a T4]")
@click.option(
    "--limit",
    metavar="SIZE",
    help="Memory limit of the framework's allocator, e.g. 12GiB; or smallest: the smallest "
    "that works.  "
    "[default: the framework's own]",
)
@shared.precision("A Keras dtype policy: float32, mixed_bfloat16, mixed_float16.")
@shared.optimizer("A name of keras.optimizers.  [default: the model's own, else adam]")
@shared.micro_batch("Estimate the step of fitroom.fit, in micro-batches of at most N samples.")
@shared.remat("What the backward pass recomputes: none, blocks, or as much as is needed to fit a limit, e.g. 6GiB.")
@shared.kernels("What computes the layers: Keras's own operations, or the framework's fused ones.")
@click.option(
    "--accumulate",
    "keras_accumulation",
    type=WholeNumber(min=1),
    metavar="N",
    help="Split the batch into N micro-steps with Keras's own gradient accumulation.",
)
@shared.jit
@click.option("--input-dtype", metavar="DTYPE", help="Dtype in which a batch is transferred to the card, e.g. uint8.")
@click.option(
    "--devices",
    type=WholeNumber(min=1, max=MOST_CARDS),
    default=1,
    metavar="N",
    help="Share the batch among N cards like this one; all figures are per card, with what distribution adds.",
)
@click.option("--shard-weights", is_flag=True, help="With --devices on JAX: divide weights and optimizer, too.")
@click.option("--inference", is_flag=True, help="Estimate a step of model.predict, not of training.")
@click.option("--measure", is_flag=True, help="Measure the step on this machine's card instead of predicting it.")
@click.option(
    "--fetch-compiler",
    is_flag=True,
    help="First download the XLA compiler that is near to TensorFlow's own, for its jitted steps: 155 MB, once.",
)
@shared.no_corrections
@shared.unsafe
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object to stdout.")
@click.option("--timeline", is_flag=True, help="With --json: also list every buffer and its lifetime.")
@click.option("--check", is_flag=True, help="Exit with 1 if a step does not fit, for scripts and CI.")
@shared.plot("Plot memory over the step, to .svg, .png or .html.")
def command(
    model: str,
    config: str | None,
    batch_size: tuple[int, ...],
    classes: int | None,
    backend: str | None,
    gpu: str | None,
    limit: str | None,
    inference: bool,
    measure: bool,
    unsafe: bool,
    as_json: bool,
    timeline: bool,
    check: bool,
    plot: Path | None,
    sequence_length: int | None,
    devices: int,
    shard_weights: bool,
    fetch_compiler: bool,
    **knobs: Any,
) -> None:
    """Estimate the memory of one training step of MODEL, by kind, layer and phase, without running it.

    MODEL is a name of keras.applications in any spelling (xception, resnet-50), a .keras file, the folder of a KerasHub
    preset, a function that returns the model (build.py:make_model or package.module:make_model), or a class of a
    package (keras_hub:BertBackbone) with its arguments in a JSON file.

    \b
    fitroom estimate xception --batch-size 64 --backend jax --gpu H200
    fitroom estimate xception --batch-size 16,32,64,128 --gpu "RTX 3060"
    fitroom estimate xception --batch-size 512 --devices 4 --gpu "RTX 3090"
    fitroom estimate keras_hub:BertBackbone --config a.json --sequence-length 128
    fitroom estimate model.keras --plot memory.html
    fitroom estimate model.keras --gpu "RTX 3060" --check
    """
    from fitroom.cli.estimate_job import EstimateJob
    from fitroom.memory.estimate import Estimate

    everywhere = (backend or "").lower() == ALL
    if plot and (everywhere or len(batch_size) > 1):
        raise click.UsageError("--plot draws one step: give one --batch-size and one --backend")
    if timeline and not as_json:
        raise click.UsageError("--timeline needs --json; --plot draws the timeline")
    if inference:
        _check_is_of_predict(**knobs)
    job = EstimateJob(
        model=model,
        config=config,
        batch_sizes=batch_size,
        classes=classes,
        recipe=Recipe(**knobs),
        gpu=gpu,
        limit=limit,
        training=not inference,
        measure=measure,
        unsafe=unsafe,
        sequence_length=sequence_length,
        devices=devices,
        shard_weights=shard_weights,
    )
    if not everywhere:
        backend = choose_backend_and_say(backend, also=(ALL,))
    if fetch_compiler:
        _fetch_compiler(backend, everywhere=everywhere)
    with progress() as say, stdout_for_results():
        cells = job.run_everywhere(say) if everywhere else job.run(backend, say)
    estimates = [cell for cell in cells if isinstance(cell, Estimate)]
    if not estimates:
        raise FitroomError(" ".join(dict.fromkeys(refusal["reason"] for refusal in _refusals(cells))))
    if plot:
        from fitroom.report.save import save_estimate

        save_estimate(estimates[0], plot)
        click.echo(f"plot written: {plot}", err=True)
    if as_json:
        found = [cell.to_dict(with_timeline=timeline) for cell in estimates]
        alone = len(batch_size) == 1 and not everywhere
        click.echo(json.dumps(found[0] if alone else {"estimates": found, "refusals": _refusals(cells)}, indent=2))
    else:
        _print(cells)
    if check and not all(isinstance(cell, Estimate) and cell.fits for cell in cells):
        click.get_current_context().exit(1)


def _check_is_of_predict(**knobs: Any) -> None:
    for name, flag in _OF_TRAINING.items():
        if knobs[name] is not None:
            raise click.UsageError(f"{flag} is of training and cannot be used with --inference")


def _fetch_compiler(backend: str | None, *, everywhere: bool) -> None:
    from fitroom.backends.choose import choose_backend

    if not everywhere and choose_backend(backend) != "tensorflow":
        raise click.UsageError("--fetch-compiler is for TensorFlow's jitted steps: add --backend tensorflow")
    from fitroom.backends.tensorflow.trace.jitted.fetch import fetch_compiler

    with activity("downloading"):
        fetch_compiler(lambda text: click.echo(text, err=True))


def _print(cells: Sequence[Any]) -> None:
    from rich.console import Console

    from fitroom.report.estimate.comparison import render_comparison

    Console().print(cells[0] if len(cells) == 1 else render_comparison(cells))


def _refusals(cells: Sequence[Any]) -> list[dict[str, Any]]:
    from fitroom.report.estimate.comparison import Refusal

    return [vars(cell) for cell in cells if isinstance(cell, Refusal)]
