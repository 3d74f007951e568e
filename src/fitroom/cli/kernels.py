"""`fitroom kernels`: which layers of a model fused kernels serve, and what that saves."""

import json
from dataclasses import asdict

import click

from fitroom.cli import shared_options as shared
from fitroom.cli.completion import complete_models
from fitroom.cli.output import choose_backend_and_say, progress, stdout_for_results
from fitroom.errors import BackendError
from fitroom.recipe import Recipe

_EPILOG = (
    "Results go to stdout, everything else to stderr. Exit codes: 0 done; 1 the input cannot be used; 2 wrong usage."
)


@click.command(name="kernels", epilog=_EPILOG)
@click.argument("model", shell_complete=complete_models)
@shared.batch_size("Samples per optimizer step.")
@shared.image_size
@shared.classes
@shared.precision("A Keras dtype policy: float32, mixed_bfloat16, mixed_float16.")
@shared.gpu("The card, e.g. 'RTX 3060'.  [default: this machine's, else a T4]")
@shared.backend("torch, or tensorflow for a step that is not jitted.", default="torch")
@shared.unsafe
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object to stdout.")
def command(
    model: str,
    batch_size: int,
    image_size: int | None,
    classes: int | None,
    precision: str | None,
    gpu: str | None,
    backend: str | None,
    unsafe: bool,
    as_json: bool,
) -> None:
    """Show which layers of MODEL fused operations of PyTorch or TensorFlow serve, and the memory that saves.

    \b
    fitroom kernels xception --batch-size 64 --gpu "RTX 3060"
    fitroom kernels model.keras --json
    fitroom kernels xception --backend tensorflow
    """
    from fitroom.backends.quiet import quieten
    from fitroom.estimating.estimate import choose_card
    from fitroom.keras_model.loading.source import ModelSource, check_model, load_resizable

    Recipe(precision=precision)  # raises for an unknown precision
    check_model(model)
    choose_card(gpu)  # raises for an unknown card
    name = choose_backend_and_say(backend or "torch")
    if name == "jax":
        raise BackendError(
            "There are no fused kernels on jax: XLA fuses the operations of a step by itself.",
            hint="--backend torch, or --backend tensorflow",
        )
    quieten(name)
    jit = False if name == "tensorflow" else None
    source = ModelSource(text=model, image_size=image_size, classes=classes, precision=precision, unsafe=unsafe)
    with progress() as say, stdout_for_results():
        from fitroom.backends.choose import current_backend
        from fitroom.backends.fused import check_fused
        from fitroom.estimating.estimate import estimate

        say(f"building {model}")
        loaded = load_resizable(source).model
        layers = current_backend().list_fused(loaded, jit=jit)
        check_fused(current_backend(), loaded, jit=jit)
        found = []
        for number, kernels in enumerate(("keras", "fused"), 1):
            say(f"estimate {number} of 2, {kernels} kernels")
            recipe = Recipe(kernels=kernels, precision=precision, jit=jit)
            found.append(estimate(loaded, batch_size, recipe=recipe, gpu=gpu))
    plain, fused = found
    if as_json:
        values = {
            "schema_version": 1,
            "layers": [asdict(layer) for layer in layers],
            "peak_bytes": {"keras": plain.peak_bytes, "fused": fused.peak_bytes},
            "required_bytes": {"keras": plain.required_bytes, "fused": fused.required_bytes},
        }
        click.echo(json.dumps(values, indent=2))
        return
    from rich.console import Console

    from fitroom.report.kernels.text import render_kernels_text

    Console().print(render_kernels_text(layers, plain, fused))
