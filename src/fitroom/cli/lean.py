"""`fitroom lean`: what a smaller model would save."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click

from fitroom.cli import shared_options as shared
from fitroom.cli.answer_cache import key_of, load_answer, store_answer
from fitroom.cli.completion import complete_models
from fitroom.cli.output import choose_backend_and_say, json_text, progress, stdout_for_results
from fitroom.estimating.estimate import choose_card
from fitroom.keras_model.loading.source import ModelSource, check_model

_EPILOG = (
    "Results go to stdout, everything else to stderr. Exit codes: 0 done; 1 the model cannot be used; 2 wrong usage."
)


@click.command(name="lean", epilog=_EPILOG)
@click.argument("model", shell_complete=complete_models)
@shared.batch_size("Samples per optimizer step.")
@shared.image_size
@shared.classes
@shared.gpu("The card, e.g. 'RTX 3060'.  [default: this machine's, else a T4]")
@shared.backend("jax, tensorflow or torch.")
@shared.unsafe
@click.option("--quick", is_flag=True, help="One estimate, the rest interpolated and marked with ~.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object to stdout.")
@shared.file("--plot", "Plot what each change leaves, to .svg or .png.", ".svg", ".png")
def command(backend: str | None, as_json: bool, plot: Path | None, **asked: Any) -> None:
    """Show what changes to MODEL would save: smaller images, fewer channels, another optimizer, adapters, and others.
    Each row is an estimate of the changed training step (at most eight; more are interpolated), ordered by saving per
    risk. All of them change the task: none is made by itself.

    \b
    fitroom lean xception --batch-size 64 --gpu "RTX 3060"
    fitroom lean model.keras --quick --json
    """
    if plot is not None:
        from fitroom.report.save import check_place

        check_place(plot)
    check_model(asked["model"])
    choose_card(asked["gpu"])  # raises for an unknown card
    job = LeanJob(**asked)
    backend = choose_backend_and_say(backend)
    with progress() as say, stdout_for_results():
        advice = job.run(backend, say)
    if plot is not None:
        from fitroom.lean.figure import save_advice

        save_advice(advice, plot)
        click.echo(f"plot written: {plot}", err=True)
    if as_json:
        click.echo(json_text(advice.to_dict()))
    else:
        from rich.console import Console

        from fitroom.lean.text import render_advice

        Console().print(render_advice(advice))


@dataclass(frozen=True, kw_only=True)
class LeanJob:
    """One model, batch and card."""

    model: str
    batch_size: int
    image_size: int | None
    classes: int | None
    gpu: str | None
    unsafe: bool
    quick: bool

    def run(self, backend: str, say: Any) -> Any:
        """The advice, from the cache where it was given before."""
        from fitroom.backends.quiet import quieten_for_estimates
        from fitroom.cards.catalogue import check_nvidia
        from fitroom.estimating.estimate import choose_card

        card, _ = choose_card(self.gpu)
        check_nvidia(card)
        quieten_for_estimates(backend)
        key = key_of(asdict(self) | {"backend": backend, "card": card.name, "measure": False, "command": "lean"})

        from fitroom.lean.advice import Advice, advise

        if found := load_answer(key, Advice.from_dict):
            return found
        from fitroom.keras_model.loading.source import load_resizable

        say(f"building {self.model}")
        source = ModelSource(text=self.model, image_size=self.image_size, classes=self.classes, unsafe=self.unsafe)
        loaded = load_resizable(source)
        advice = advise(
            self.model,
            loaded.model,
            loaded.rebuild,
            batch_size=self.batch_size,
            card=card,
            quick=self.quick,
            say=say,
        )
        store_answer(key, advice.to_dict())
        return advice
