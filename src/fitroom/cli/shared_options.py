"""Options that several commands have, spelled and checked the same way."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from fitroom.backends.choose import INSTALLABLE
from fitroom.cli.completing import complete_gpus
from fitroom.cli.remat_choice import RematChoice
from fitroom.recipe import PRECISIONS, REMAT_NAMES

Decorator = Callable[[Any], Any]

image_size = click.option(
    "--image-size", type=click.IntRange(min=1), metavar="PIXELS", help="Height and width of the pictures."
)
sequence_length = click.option(
    "--sequence-length", type=click.IntRange(min=1), metavar="N", help="Of inputs whose length the model leaves open."
)
jit = click.option("--jit/--no-jit", default=None, help="Whether the step is compiled whole.  [default: as Keras does]")
classes = click.option(
    "--classes", type=click.IntRange(min=1), metavar="N", help="Of a ready-made model.  [default: 5]"
)
unsafe = click.option("--unsafe", is_flag=True, help="Let a .keras file bring code of its own (Lambda layers).")


def batch_size(text: str) -> Decorator:
    """`--batch-size` of one batch."""
    return click.option(
        "--batch-size", type=click.IntRange(min=1), default=32, show_default=True, metavar="N", help=text
    )


def backend(text: str, *more: str, default: str = "KERAS_BACKEND, keras.json, else the first installed") -> Decorator:
    """`--backend`; what it may be is checked when it is chosen, by the words that KERAS_BACKEND is checked by."""
    completed = _words(*INSTALLABLE, *more)
    return click.option("--backend", metavar="NAME", help=f"{text}  [default: {default}]", shell_complete=completed)


def gpu(text: str, *more: str) -> Decorator:
    """`--gpu`."""

    def complete(ctx: click.Context, param: click.Parameter, typed: str) -> list[Any]:
        return [*_words(*more)(ctx, param, typed), *complete_gpus(ctx, param, typed)]

    return click.option("--gpu", metavar="NAME", help=text, shell_complete=complete)


def precision(text: str, *more: str, **options: Any) -> Decorator:
    """`--precision`."""
    completed = _words(*more, *PRECISIONS)
    return click.option("--precision", metavar="POLICY", help=text, shell_complete=completed, **options)


def optimizer(text: str, **options: Any) -> Decorator:
    """`--optimizer`."""
    return click.option("--optimizer", metavar="NAME", help=text, **options)


def micro_batch(text: str) -> Decorator:
    """`--micro-batch`."""
    return click.option("--micro-batch", type=click.IntRange(min=1), metavar="N", help=text)


def remat(text: str, **options: Any) -> Decorator:
    """`--remat`."""
    completed = _words(*REMAT_NAMES)
    return click.option("--remat", type=RematChoice(), metavar="CHOICE", help=text, shell_complete=completed, **options)


def plot(text: str) -> Decorator:
    """`--plot`."""
    return file("--plot", text, ".svg", ".png", ".html")


def file(flag: str, text: str, *suffixes: str) -> Decorator:
    """A file to write. What writing would refuse is said before the work instead of after it."""

    def checked_early(ctx: click.Context, param: click.Parameter, path: Path | None) -> Path | None:
        if path and suffixes and path.suffix.lower() not in suffixes:
            kinds = " or ".join(filter(None, (", ".join(suffixes[:-1]), suffixes[-1])))
            raise click.BadParameter(f"{str(path)!r} must end in {kinds}", ctx, param)
        if path and not path.parent.is_dir():
            raise click.BadParameter(f"there is no folder {str(path.parent)!r}; make it first", ctx, param)
        return path

    kind = click.Path(path_type=Path, dir_okay=False)
    return click.option(flag, type=kind, callback=checked_early, metavar="FILE", help=text)


def prefer(what: str) -> Decorator:
    """`--prefer`; `what` is what a batch is of."""
    return click.option(
        "--prefer",
        type=click.Choice(["whole-batches", "speed"]),
        default="whole-batches",
        show_default=True,
        help=f"Whether BatchNormalization has at least 16 {what} at once as long as anything else fits.",
    )


def _words(*words: str) -> Callable[[click.Context, click.Parameter, str], list[str]]:
    return lambda ctx, param, typed: [word for word in words if word.startswith(typed)]
