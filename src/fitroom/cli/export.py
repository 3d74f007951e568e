"""`fitroom export`: a trained model as a file for another runtime."""

from pathlib import Path
from typing import Any

import click

from fitroom.cli import shared_options as shared
from fitroom.cli.completion import complete_runs
from fitroom.cli.output import json_text, progress, stdout_for_results

_EPILOG = (
    "Results go to stdout, everything else to stderr. Exit codes: 0 done; 1 not exported, or the file does not answer "
    "as the model does; 2 wrong usage."
)


@click.command(name="export", epilog=_EPILOG)
@click.argument("model", type=click.Path(path_type=Path), shell_complete=complete_runs)
@click.option(
    "--format",
    "format_name",
    required=True,
    metavar="NAME",
    help="onnx, litert, saved-model, openvino or torch.",
)
@click.option("--int8", is_flag=True, help="Weights and activations in 8 bits, calibrated on the run's images.")
@click.option(
    "--to", type=click.Path(path_type=Path), metavar="FILE", help="The file to write.  [default: beside the model]"
)
@click.option(
    "--images",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="Images to calibrate and check with.  [default: those of the run]",
)
@click.option("--with-resizing", "resizing", is_flag=True, help="Resize images in the file, which then takes any size.")
@shared.backend("Where several can write the format: jax, tensorflow or torch.", default="the first that can")
@shared.unsafe
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object to stdout.")
def command(model: Path, format_name: str, as_json: bool, **asked: Any) -> None:
    """Export MODEL, a run folder or a .keras file, to another format, on the backend that the format needs, whichever
    it was trained on. The file is checked on real images: it must answer as the model does. Class names are written
    beside.

    \b
    fitroom export runs/a --format onnx
    fitroom export runs/a --format litert --int8
    fitroom export model.keras --format torch --images flowers/
    """
    from fitroom.lean.export.export import export_model

    with progress() as say, stdout_for_results():
        found = export_model(model, format_name, say=say, **asked)
    click.echo(json_text(found.to_dict()) if as_json else _words(found, resizes=asked["resizing"]))


def format_latency(seconds: float) -> str:
    """A latency in three digits.

    >>> format_latency(0.001634), format_latency(1.1062)
    ('1.63 ms', '1,106 ms')
    """
    return f"{1000 * seconds:.3g} ms" if seconds < 1 else f"{1000 * seconds:,.0f} ms"


def _words(found: Any, *, resizes: bool) -> str:
    from fitroom.units import format_bytes

    kind = "images" if found.are_real else "images of noise"
    smaller = f", {found.float_bytes / found.size_bytes:.1f} times smaller than the weights in float32"
    lines = [
        f"file       {found.path}",
        f"size       {format_bytes(found.size_bytes)}{smaller if found.float_bytes > 1.05 * found.size_bytes else ''}",
        f"agreement  the same class on {100 * found.same_class:.1f} % of {found.images} {kind};",
        f"           outputs differ by up to {found.largest_difference:.2g}"
        + (";\n           its resizing is not that of the training" if resizes else ""),
        f"latency    {format_latency(found.latency_seconds)} for one image on this machine's CPU",
    ]
    if found.quantized_share is not None:
        lines.append(f"int8       {100 * found.quantized_share:.1f} % of the weights")
    if found.labels:
        lines.append(f"classes    {found.labels}")
    return "\n".join(lines)
