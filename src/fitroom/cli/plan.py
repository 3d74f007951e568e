"""`fitroom plan`: the fastest recipe that fits."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from fitroom.cards.catalogue import Card
from fitroom.cli import shared_options as shared
from fitroom.cli.completion import complete_models
from fitroom.cli.option_types import BatchSizeOrMax
from fitroom.cli.output import choose_backend_and_say, progress, stdout_for_results
from fitroom.cli.shared_options import knob_names
from fitroom.distribution.cards import parse_cards
from fitroom.errors import InputError
from fitroom.planning.request import ALLOWABLE, KEEPABLE

ALL = "all"
_EPILOG = (
    "Results go to stdout, everything else to stderr. Exit codes: 0 done; 1 nothing fits, or the input cannot be used; "
    "2 wrong usage."
)


@click.command(name="plan", epilog=_EPILOG)
@click.argument("model", shell_complete=complete_models)
@shared.config
@click.option(
    "--batch-size",
    type=BatchSizeOrMax(),
    default="32",
    show_default=True,
    metavar="N",
    help="Samples per optimizer step, never changed; or max: the largest batch that fits without micro-batches.",
)
@shared.image_size
@shared.sequence_length
@shared.classes
@shared.gpu("The card, e.g. 'RTX 3060'; or all cards of the catalogue.  [default: this machine's, else a T4]", ALL)
@click.option("--gpus", metavar="CARDS", help="Several cards that train together, e.g. '2x RTX 3060, 1x RTX 3090'.")
@click.option("--budget", metavar="SIZE", help="Memory to train in, e.g. 8GiB. With --gpu: a limit on that card.")
@shared.backend("jax, tensorflow or torch.")
@shared.precision("A Keras dtype policy, or auto: the fastest on the card.  [default: the model's own]", "auto")
@shared.optimizer("A name of keras.optimizers.  [default: the model's own, else adam]")
@knob_names("--keep", KEEPABLE, "Settings that stay as they are")
@knob_names("--allow", ALLOWABLE, "Settings that change the task and may be changed where nothing else fits")
@shared.prefer("samples")
@click.option(
    "--probe", is_flag=True, help="Time the best recipes on this machine's card instead of predicting their speed."
)
@shared.no_corrections
@shared.unsafe
@click.option("--all-recipes", is_flag=True, help="Show all alternatives.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object to stdout.")
@shared.plot("Plot the alternatives, to .svg, .png or .html.")
@shared.file("--save", "Save the plan for fitroom.fit(plan=FILE).")
def command(
    backend: str | None,
    gpu: str | None,
    gpus: str | None,
    all_recipes: bool,
    as_json: bool,
    plot: Path | None,
    save: Path | None,
    **asked: Any,
) -> None:
    """Find the fastest recipe to train MODEL with this batch in this memory: micro-batch, segments to recompute,
    precision; with its memory, its speed and its effect on the result. No GPU is needed.

    MODEL is a name of keras.applications in any spelling (xception, resnet-50), a .keras file, the folder of a KerasHub
    preset, a function that returns the model (build.py:make_model or package.module:make_model), or a class of a
    package (keras_hub:BertBackbone) with its arguments in a JSON file.

    \b
    fitroom plan xception --batch-size 256 --gpu "RTX 3060" --precision auto
    fitroom plan xception --batch-size max --budget 12GiB
    fitroom plan xception --batch-size 256 --gpu all
    fitroom plan xception --batch-size 512 --gpus "2x RTX 3060, 1x RTX 3090"
    fitroom plan model.keras --budget 8GiB --keep precision --allow image-size
    fitroom plan model.keras --budget 8GiB --plot plan.html --save plan.json
    """
    from fitroom.cli.plan_job import PlanJob

    of_one = {"plot": plot, "save": save, "all_recipes": all_recipes}
    cards = _read_cards(gpus, gpu=gpu, **of_one, **asked) if gpus is not None else ()
    everywhere = (gpu or "").strip().lower() == ALL
    if everywhere:
        _check_is_for_all(**of_one, **asked)
    job = PlanJob(gpu=None if everywhere else gpu, **asked | {"prefer": asked["prefer"].replace("-", " ")})
    backend = choose_backend_and_say(backend)
    if cards:
        with progress() as say, stdout_for_results():
            together = job.run_for_devices(cards, backend, say)
        _show(together.to_dict() if as_json else _sheet(job, together))
        return
    if everywhere:
        with progress() as say, stdout_for_results():
            found = job.run_for_cards(backend, say)
        if not any(each.option for each in found):
            raise InputError(
                f"No card of the catalogue can train {job.model} with batch size {job.batch_size}.",
                hint="a smaller --batch-size or --image-size, --precision auto, --allow image-size",
            )
        _show({"schema_version": 1, "plans": [each.to_dict() for each in found]} if as_json else _table(job, found))
        return
    with progress() as say, stdout_for_results():
        plan = job.run(backend, say)
    if plot:
        from fitroom.report.save import save_plan

        save_plan(plan, plot)
        click.echo(f"plot written: {plot}", err=True)
    if save:
        plan.save(save)
        click.echo(f"saved: {save}", err=True)
    if as_json:
        _show(plan.to_dict())
        return
    from fitroom.report.plan.text import render_plan_text

    _show(render_plan_text(plan, all_recipes=all_recipes))


def _read_cards(gpus: str, **asked: Any) -> tuple[Card, ...]:
    _refuse(("gpu", "probe", "plot", "save", "all_recipes"), asked, "--gpus")
    if asked["batch_size"] == "max":
        raise click.UsageError("--gpus needs a number for --batch-size")
    return parse_cards(gpus)


def _refuse(names: Sequence[str], asked: Mapping[str, Any], beside: str) -> None:
    for name in names:
        if asked[name]:
            raise click.UsageError(f"--{name.replace('_', '-')} is for one card and cannot be used with {beside}")


def _check_is_for_all(**asked: Any) -> None:
    _refuse(("budget", "probe", "plot", "save", "all_recipes"), asked, "--gpu all")
    if asked["batch_size"] == "max":
        raise click.UsageError("--gpu all needs a number for --batch-size: max differs from card to card")


def _sheet(job: Any, plan: Any) -> Any:
    from fitroom.report.plan.devices import render_devices_plan

    return render_devices_plan(plan, f"{job.model}, batch {job.batch_size} on {len(plan.samples)} cards")


def _table(job: Any, found: list[Any]) -> Any:
    from fitroom.report.plan.cards import render_cards_table

    return render_cards_table(found, f"{job.model}, batch {job.batch_size}")


def _show(result: Any) -> None:
    if isinstance(result, dict):
        click.echo(json.dumps(result, indent=2))
        return
    from rich.console import Console

    Console().print(result)
