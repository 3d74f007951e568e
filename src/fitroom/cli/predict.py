"""`fitroom predict`: classifies images with a trained classifier."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from fitroom.cli import shared_options as shared
from fitroom.cli.completion import complete_runs
from fitroom.cli.option_types import WholeNumber
from fitroom.cli.output import choose_backend_and_say
from fitroom.errors import FitroomError

_EPILOG = (
    "Results go to stdout, everything else to stderr. Exit codes: 0 done, even if some files could not be read; "
    "1 none could be read, or there is no model; 2 wrong usage."
)


@click.command(name="predict", epilog=_EPILOG)
@click.argument("model", type=click.Path(path_type=Path), shell_complete=complete_runs)
@click.argument("images", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--top",
    type=WholeNumber(min=1),
    default=5,
    show_default=True,
    metavar="N",
    help="Classes to show for each image.",
)
@shared.batch_size("Images per batch; halved where memory runs out.")
@shared.backend("jax, tensorflow or torch.", default="KERAS_BACKEND, else that of the run")
@shared.unsafe
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object to stdout.")
def command(
    model: Path,
    images: tuple[Path, ...],
    top: int,
    batch_size: int,
    backend: str | None,
    unsafe: bool,
    as_json: bool,
) -> None:
    """Predict the most likely classes of IMAGES, files or folders, with MODEL: a run folder or a .keras file.

    \b
    fitroom predict runs/a rose.jpg
    fitroom predict runs/a new/ --top 1 --json
    """
    from fitroom.classify.classifier import list_image_files, load_classifier, run_backend
    from fitroom.cli.output import json_text, progress, stdout_for_results

    files = list_image_files(images)
    usual = None if backend or os.environ.get("KERAS_BACKEND") else run_backend(model)
    choose_backend_and_say(backend or usual, why="as in the run" if usual else "--backend")
    with progress(), stdout_for_results():
        classifier = load_classifier(model, backend=backend, unsafe=unsafe)
        found = classifier.predict(files, top=top, batch_size=batch_size)
    good = [one for one in found if one["reason"] is None]
    if as_json:
        click.echo(json_text({"model": str(model), "predictions": found}))
    else:
        _print(good)
        for one in found:
            if one["reason"] is not None:
                click.echo(f"skipped: {one['reason']}", err=True)
    if not good:
        raise FitroomError(
            f"None of the {len(found)} files could be read as an image.", hint="give JPEG, PNG, WebP, GIF or BMP files"
        )


def _print(predictions: Sequence[dict[str, Any]]) -> None:
    """Print one line per image, in columns."""
    from rich.cells import cell_len

    rows = [
        [one["file"], *(cell for name, probability in one["top"] for cell in (name, f"{100 * probability:.1f} %"))]
        for one in predictions
    ]
    widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        padded = []
        for cell, width in zip(row, widths, strict=True):
            space = " " * (width - cell_len(cell))  # Chinese and Japanese letters are two columns wide
            padded.append(space + cell if cell.endswith(" %") else cell + space)
        click.echo("  ".join(padded).rstrip())
