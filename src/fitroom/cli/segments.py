"""`fitroom segments`: where a model's graph of layers can be cut, and what recomputing its segments saves and costs."""

import json
from pathlib import Path
from typing import Any

import click

from fitroom.cli import shared_options as shared
from fitroom.cli.backend_line import choose_and_say
from fitroom.cli.completing import complete_models
from fitroom.cli.output import stdout_for_results
from fitroom.recipe import Recipe, Remat

_EPILOG = "Results go to stdout, everything else to stderr. Exit code 1: what was given cannot work; 2: wrong usage."


@click.command(name="segments", epilog=_EPILOG)
@click.argument("model", shell_complete=complete_models)
@shared.remat("none, blocks, or a size for the whole step such as 6GiB.", default="blocks", show_default=True)
@shared.batch_size("Samples at once.")
@shared.image_size
@shared.classes
@shared.precision("A Keras dtype policy: float32, mixed_bfloat16, mixed_float16.")
@shared.backend("jax, tensorflow, torch: only to build the model with.")
@shared.unsafe
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
@shared.file("--plot", "Draw the graph: an .svg file.", ".svg")
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
    """Where the layers of MODEL can be cut into segments, what computing them again saves, and what it costs.

    \b
    fitroom segments xception
    fitroom segments densenet121 --batch-size 64 --remat 4GiB --plot densenet.svg
    fitroom segments model.keras --json
    """
    from fitroom.backends.quiet import quieten
    from fitroom.keras_model.loading.source import ModelSource, check_model, load_resizable

    Recipe(precision=precision)  # raises where there is no such precision
    check_model(model)
    quieten(choose_and_say(backend))
    source = ModelSource(text=model, image_size=image_size, classes=classes, precision=precision, unsafe=unsafe)
    with stdout_for_results():
        outline, graph = _outline(load_resizable(source).model, remat, batch_size, precision)
    if plot:
        from fitroom.report.segments_graph import graph_svg

        plot.write_text(graph_svg(graph, outline), encoding="utf-8")
        click.echo(f"drawn: {plot}", err=True)
    if as_json:
        click.echo(json.dumps(outline.to_dict(), indent=2))
        return
    from rich.console import Console

    from fitroom.report.segments_text import SegmentsText

    Console().print(SegmentsText(outline))


def _outline(model: Any, remat: str | Remat, batch_size: int, precision: str | None) -> Any:
    from fitroom.keras_model.layers import precision_of
    from fitroom.keras_model.precision import in_precision
    from fitroom.keras_model.recompute import resident_bytes
    from fitroom.remat.chooser import SegmentChooser
    from fitroom.remat.table import make_segment_table

    with in_precision(model, precision):
        chooser = SegmentChooser.of_model(model)
        segmentation = chooser.choose(remat, batch_size, resident_bytes(model, batch_size))
        outline = make_segment_table(
            chooser, segmentation, model=model.name, precision=precision_of(model), num_samples=batch_size
        )
    return outline, chooser.graph
