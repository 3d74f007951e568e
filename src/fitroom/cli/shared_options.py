"""Options that several commands share."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from fitroom.backends.choose import INSTALLABLE
from fitroom.cli.completion import complete_gpus
from fitroom.cli.option_types import DevicesChoice, RematChoice, WholeNumber
from fitroom.environment import NO_CORRECTIONS
from fitroom.recipe import KERNELS, PRECISIONS, REMAT_NAMES

Decorator = Callable[[Any], Any]

image_size = click.option(
    "--image-size", type=WholeNumber(min=1), metavar="PIXELS", help="Height and width of the images."
)
sequence_length = click.option(
    "--sequence-length",
    type=WholeNumber(min=1),
    metavar="N",
    help="Length of the input sequences, where the model leaves it open or is not built.",
)
jit = click.option("--jit/--no-jit", default=None, help="Whether to compile the whole step.  [default: as Keras does]")
classes = click.option(
    "--classes",
    type=WholeNumber(min=1),
    metavar="N",
    help="Number of classes of a keras.applications model.  [default: 5]",
)
config = click.option(
    "--config",
    type=click.Path(),
    metavar="FILE",
    help="Arguments for a class of a package or a function, as a JSON object.",
)


def _switch_corrections_off(ctx: click.Context, param: click.Parameter, is_off: bool) -> None:
    if is_off:
        os.environ[NO_CORRECTIONS] = "1"


no_corrections = click.option(
    "--no-corrections",
    is_flag=True,
    expose_value=False,
    callback=_switch_corrections_off,
    help="Neither use nor keep steps measured on this machine, which correct estimates.",
)
unsafe = click.option("--unsafe", is_flag=True, help="Run code stored in a .keras file, such as Lambda layers.")


def batch_size(text: str) -> Decorator:
    """`--batch-size`, a single number."""
    return click.option("--batch-size", type=WholeNumber(min=1), default=32, show_default=True, metavar="N", help=text)


def backend(text: str, *more: str, default: str = "KERAS_BACKEND, keras.json, else the first installed") -> Decorator:
    """`--backend`. Its value is checked when the backend is chosen, as that of KERAS_BACKEND is."""
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


def devices(text: str) -> Decorator:
    """`--devices`."""
    return click.option(
        "--devices",
        type=DevicesChoice(),
        metavar="all|N|0,1",
        help=f"{text}: all, the first N, or some by number. Each gets a share of every batch.",
    )


def optimizer(text: str, **options: Any) -> Decorator:
    """`--optimizer`."""
    return click.option("--optimizer", metavar="NAME", help=text, **options)


def micro_batch(text: str) -> Decorator:
    """`--micro-batch`."""
    return click.option("--micro-batch", type=WholeNumber(min=1), metavar="N", help=text)


def remat(text: str, **options: Any) -> Decorator:
    """`--remat`."""
    completed = _words(*REMAT_NAMES)
    return click.option("--remat", type=RematChoice(), metavar="CHOICE", help=text, shell_complete=completed, **options)


def kernels(text: str) -> Decorator:
    """`--kernels`."""
    return click.option("--kernels", type=click.Choice(KERNELS), help=text)


def plot(text: str) -> Decorator:
    """`--plot`."""
    return file("--plot", text, ".svg", ".png", ".html")


def file(flag: str, text: str, *suffixes: str) -> Decorator:
    """A file to write. Its suffix and folder are checked before the work instead of after it."""

    def check_early(ctx: click.Context, param: click.Parameter, path: Path | None) -> Path | None:
        if path and suffixes and path.suffix.lower() not in suffixes:
            kinds = " or ".join(filter(None, (", ".join(suffixes[:-1]), suffixes[-1])))
            raise click.BadParameter(f"{str(path)!r} must end in {kinds}", ctx, param)
        if path and not path.parent.is_dir():
            raise click.BadParameter(f"there is no folder {str(path.parent)!r}; make it first", ctx, param)
        return path

    kind = click.Path(path_type=Path, dir_okay=False)
    return click.option(flag, type=kind, callback=check_early, metavar="FILE", help=text)


def prefer(what: str) -> Decorator:
    """`--prefer`; `what` names the elements of a batch."""
    return click.option(
        "--prefer",
        type=click.Choice(["whole-batches", "speed"]),
        default="whole-batches",
        show_default=True,
        help=f"For a model with BatchNormalization. whole-batches: no micro-batch below 16 {what} where 16 or "
        "more fit; speed: the fastest recipe, however small its micro-batch.",
    )


def _words(*words: str) -> Callable[[click.Context, click.Parameter, str], list[str]]:
    return lambda ctx, param, typed: [word for word in words if word.startswith(typed)]


def knob_names(flag: str, known: Sequence[str], text: str) -> Decorator:
    """An option of knob names, with commas or repeated. The names are checked by `fitroom.plan`."""

    def split(ctx: click.Context, param: click.Parameter, given: Sequence[str]) -> tuple[str, ...]:
        return tuple(word.strip() for words in given for word in words.split(","))

    def complete(ctx: click.Context, param: click.Parameter, typed: str) -> list[str]:
        before, comma, begun = typed.rpartition(",")
        return [f"{before}{comma}{name}" for name in known if name.startswith(begun)]

    options: dict[str, Any] = {"multiple": True, "callback": split, "shell_complete": complete}
    return click.option(flag, metavar="SETTING[,SETTING...]", help=f"{text}: {', '.join(known)}.", **options)
