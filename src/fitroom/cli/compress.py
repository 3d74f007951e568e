"""`fitroom compress`: prunes a trained classifier and fine-tunes it."""

import json
import sys
from pathlib import Path
from typing import Any

import click

from fitroom.cli import shared_options as shared
from fitroom.cli.completion import complete_runs
from fitroom.cli.option_types import Number, WholeNumber
from fitroom.cli.output import choose_backend_and_say, open_view, stdout_for_results
from fitroom.errors import RunInterrupted

_EPILOG = (
    "Results go to stdout, everything else to stderr. Exit codes: 0 done; 1 the run cannot be used; 2 wrong usage; "
    "130 interrupted: the same command resumes."
)


@click.command(name="compress", epilog=_EPILOG)
@click.argument("run", type=click.Path(path_type=Path), shell_complete=complete_runs)
@click.option("--sparsity", type=float, metavar="SHARE", help="Share of the channels to remove, e.g. 0.5.")
@click.option("--target-size", metavar="SIZE", help="Or: prune until model.keras takes no more, e.g. 2MB.")
@click.option(
    "--epochs", type=WholeNumber(min=1), metavar="N", help="Epochs of fine-tuning.  [default: half of the run's]"
)
@click.option(
    "--learning-rate",
    type=Number(min=0, min_open=True),
    metavar="RATE",
    help="Of fine-tuning.  [default: that of a pretrained model]",
)
@click.option("--budget", metavar="SIZE", help="Memory to fine-tune in, e.g. 8GiB.  [default: as in the run]")
@shared.unsafe
@click.option("--run-dir", type=click.Path(path_type=Path), metavar="FOLDER", help="[default: RUN-pruned]")
@click.option("--json", "as_json", is_flag=True, help="Print JSON lines to stdout; the last one is the comparison.")
def command(
    run: Path, sparsity: float | None, target_size: str | None, run_dir: Path | None, as_json: bool, **changes: Any
) -> None:
    """Prune the classifier in RUN, a run folder of `fitroom train`: whole channels are removed. Then fine-tune it on
    the images of the run, in a run folder of its own, and compare accuracy, size and latency before and after.
    Interrupted, the same command resumes.

    \b
    fitroom compress runs/a --sparsity 0.5
    fitroom compress runs/a --target-size 2MB --epochs 10 --budget 8GiB
    """
    from fitroom.lean.compressing import CompressJob

    job = CompressJob(
        run=run,
        sparsity=sparsity,
        target_size=target_size,
        run_dir=run_dir or run.with_name(run.name + "-pruned"),
        changes=changes | {"unsafe": changes["unsafe"] or None},
        command=["fitroom", *sys.argv[1:]],
    )
    choose_backend_and_say(job.read_job().backend, why="as in the run")
    with open_view(as_json=as_json) as view, stdout_for_results():
        try:
            found = job.carry_out(view)
        except RunInterrupted:
            view.ended({"state": "interrupted", "run_dir": str(job.run_dir)})
            click.echo("to resume: the same command again", err=True)
            raise
    if as_json:
        click.echo(json.dumps({"event": "compressed"} | found.to_dict()))
    else:
        _print(found)


def times_as_fast(ratio: float) -> str:
    """How speeds compare.

    >>> times_as_fast(2.04), times_as_fast(0.8)
    ('2.0 x faster', '1.2 x slower')
    """
    return f"{ratio:.1f} x faster" if ratio >= 1 else f"{1 / ratio:.1f} x slower"


def _print(found: Any) -> None:
    from rich.console import Console
    from rich.table import Table

    from fitroom.backends.choose import installed_backends
    from fitroom.units import format_bytes

    before, after = found.before, found.after

    def accuracy(value: float | None) -> str:
        return "unknown" if value is None else f"{100 * value:.1f} %"

    lost = (
        "" if None in (before.accuracy, after.accuracy) else f"{100 * (after.accuracy - before.accuracy):+.1f} points"
    )
    table = Table(title=f"pruned by {100 * found.sparsity:.0f} % of the channels", title_justify="left", box=None)
    for name in ("", "before", "after", "change"):
        table.add_column(name, justify="left" if not name else "right")
    table.add_row(f"accuracy on {found.split}", accuracy(before.accuracy), accuracy(after.accuracy), lost)
    table.add_row(
        "parameters",
        f"{before.parameters:,}",
        f"{after.parameters:,}",
        f"{before.parameters / after.parameters:.1f} x fewer",
    )
    table.add_row(
        "model.keras",
        format_bytes(before.size_bytes),
        format_bytes(after.size_bytes),
        f"{before.size_bytes / after.size_bytes:.1f} x smaller",
    )
    table.add_row(
        "latency, one image, CPU",
        f"{1000 * before.latency_seconds:.1f} ms",
        f"{1000 * after.latency_seconds:.1f} ms",
        times_as_fast(before.latency_seconds / after.latency_seconds),
    )
    Console().print(table)
    if found.images and before.accuracy is not None:
        error = 100 * (before.accuracy * (1 - before.accuracy) / found.images) ** 0.5
        Console(highlight=False).print(
            f"Accuracy is of {found.images} images, on which one run differs from another"
            + (f"; its standard error is {error:.1f} points" if error else "")
            + "."
        )
    click.echo(f"model     {Path(after.run_dir) / 'model.keras'}")
    form = "litert" if "tensorflow" in installed_backends() else "onnx"
    click.echo(f"next      fitroom export {after.run_dir} --format {form} --int8")
