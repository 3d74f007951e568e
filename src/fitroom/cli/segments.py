"""`fitroom segments`: the segments of a model's layer graph, and what recomputing them saves and costs."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fitroom.cli import shared_options as shared
from fitroom.cli.completion import complete_models
from fitroom.cli.output import choose_backend_and_say, progress, stdout_for_results
from fitroom.recipe import Recipe, Remat

if TYPE_CHECKING:
    from fitroom.remat.graph import LayerGraph
    from fitroom.remat.table import SegmentTable

_EPILOG = (
    "Results go to stdout, everything else to stderr. Exit codes: 0 done; 1 the input cannot be used; 2 wrong usage."
)


@click.command(name="segments", epilog=_EPILOG)
@click.argument("model", shell_complete=complete_models)
@shared.remat(
    "What to recompute: none, blocks, or as much as the whole step needs to fit a limit, e.g. 6GiB.",
    default="blocks",
    show_default=True,
)
@shared.batch_size("Samples in a micro-batch.")
@shared.image_size
@shared.classes
@shared.precision("A Keras dtype policy: float32, mixed_bfloat16, mixed_float16.")
@shared.backend("jax, tensorflow or torch, only used to build the model.")
@shared.unsafe
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object to stdout.")
@shared.file("--plot", "Draw the graph, to an .svg file.", ".svg")
def command(
    model: str,
    remat: str | Remat,
    batch_size: int,
    image_size: int | None,
    classes: int | None,
    precision: str | None,
    backend: str | None,
    unsafe: bool,
    as_json: bool,
    plot: Path | None,
) -> None:
    """Show where the layers of MODEL can be divided into segments, what recomputing them saves, and what it costs.

    \b
    fitroom segments xception
    fitroom segments densenet121 --batch-size 64 --remat 4GiB --plot densenet.svg
    fitroom segments model.keras --json
    """
    from fitroom.backends.quiet import quieten
    from fitroom.keras_model.loading.source import ModelSource, check_model, load_resizable

    Recipe(precision=precision)  # raises for an unknown precision
    check_model(model)
    quieten(choose_backend_and_say(backend))
    source = ModelSource(text=model, image_size=image_size, classes=classes, precision=precision, unsafe=unsafe)
    with progress() as say, stdout_for_results():
        say(f"building {model}")
        loaded = load_resizable(source).model
        say("searching for segments")
        table, graph = _make_table(loaded, remat, batch_size, precision)
    if plot:
        from fitroom.report.segments.figure import draw_segments

        plot.write_text(draw_segments(graph, table), encoding="utf-8")
        click.echo(f"plot written: {plot}", err=True)
    if as_json:
        click.echo(json.dumps(table.to_dict(), indent=2))
        return
    from rich.console import Console

    from fitroom.report.segments.text import render_segments_text

    Console().print(render_segments_text(table))


def _make_table(
    model: Any, remat: str | Remat, batch_size: int, precision: str | None
) -> tuple["SegmentTable", "LayerGraph"]:
    """Return the table of a model's segments, and the layer graph that they divide."""
    from fitroom.keras_model.layers import precision_of
    from fitroom.keras_model.precision import in_precision
    from fitroom.keras_model.recompute import resident_bytes
    from fitroom.remat.chooser import SegmentChooser
    from fitroom.remat.table import make_segment_table

    with in_precision(model, precision):
        chooser = SegmentChooser.of_model(model)
        segmentation = chooser.choose(remat, batch_size, resident_bytes(model, batch_size))
        table = make_segment_table(
            chooser, segmentation, model=model.name, precision=precision_of(model), num_samples=batch_size
        )
    return table, chooser.graph
