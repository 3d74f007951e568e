"""`fitroom predict`: what a trained classifier makes of pictures."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from fitroom.cli import shared_options as shared
from fitroom.cli.backend_line import choose_and_say
from fitroom.cli.completing import complete_runs
from fitroom.errors import FitroomError

_EPILOG = (
    "Results go to stdout, everything else to stderr. Exit codes: 0 done, also where some files could not be read; "
    "1 none could, or there is no model; 2 wrong usage."
)


@click.command(name="predict", epilog=_EPILOG)
@click.argument("model", type=click.Path(path_type=Path), shell_complete=complete_runs)
@click.argument("pictures", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--top", type=click.IntRange(min=1), default=5, show_default=True, metavar="N", help="Classes to name.")
@shared.batch_size("Pictures at once; halved where memory runs out.")
@shared.backend("jax, tensorflow or torch.", default="KERAS_BACKEND, else as the run")
@shared.unsafe
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
def command(
    model: Path,
    pictures: tuple[Path, ...],
    top: int,
    batch_size: int,
    backend: str | None,
    unsafe: bool,
    as_json: bool,
) -> None:
    """Name the top_classes classes of PICTURES, files or folders, by MODEL: a run folder or a .keras file.

    \b
    fitroom predict runs/a rose.jpg
    fitroom predict runs/a new/ --top 1 --json
    """
    from fitroom.classify.classifier import list_image_files, load_classifier, run_backend
    from fitroom.cli.output import json_text, stdout_for_results

    files = list_image_files(pictures)
    usual = None if backend or os.environ.get("KERAS_BACKEND") else run_backend(model)
    choose_and_say(backend or usual, why="as the run was trained" if usual else "--backend")
    with stdout_for_results():
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
            f"None of the {len(found)} files could be read as a picture.", hint="give JPEG, PNG, WebP, GIF or BMP files"
        )


def _print(predictions: Sequence[dict[str, Any]]) -> None:
    """A line a picture, in columns."""
    from rich.cells import cell_len

    rows = [
        [one["file"], *(cell for name, probability in one["top"] for cell in (name, f"{100 * probability:.1f} %"))]
        for one in predictions
    ]
    widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        padded = []
        for cell, width in zip(row, widths, strict=True):
            space = " " * (width - cell_len(cell))  # a letter of Chinese or Japanese is two wide
            padded.append(space + cell if cell.endswith(" %") else cell + space)
        click.echo("  ".join(padded).rstrip())
