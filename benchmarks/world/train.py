"""Train the configurations of the corpus on the CPU: plain Keras beside `fitroom.fit`, whole and in micro-batches.

    python benchmarks/world/train.py jax                     # or torch, tensorflow
    python benchmarks/world/train.py torch --only "dilated,bert" --again

Adds a line a configuration and backend to results/world_trained.jsonl. Two steps of SGD with one batch of random data
and equal weights; what draws random numbers in the step is switched off first. The losses of whole batches must agree
with Keras's, and in micro-batches too, unless a layer looks at the whole batch, as BatchNormalization does.
"""

import argparse
import os
import sys
import traceback
import warnings
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
from world.corpus import CPU_BATCH, Configuration
from world.estimates import chosen, read_lines, start_backend, time_limit, write_line

RESULT = Path(__file__).parents[1] / "results" / "world_trained.jsonl"
MICRO_BATCH = 2
MOST_SECONDS = 300
TOLERANCE = {"float32": 2e-3, "mixed_bfloat16": 3e-2, "mixed_float16": 1e-2}
"""Of the loss of the second step, relative: the first step has moved all weights by then."""


def main() -> None:
    """Train what has no line yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("backend", choices=("jax", "torch", "tensorflow"))
    parser.add_argument("--only", default="")
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--to", type=Path, default=RESULT)
    parser.add_argument("--debug", action="store_true")
    arguments = parser.parse_args()
    start_backend(arguments.backend)
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    known = {(line["name"], line["mode"]) for line in read_lines(arguments.to)}
    for each in chosen(arguments.only):
        if arguments.again or (each.name, arguments.backend) not in known:
            line = {"name": each.name, "mode": arguments.backend, "family": each.family}
            write_line(arguments.to, line | trained(each, debug=arguments.debug))


def trained(configuration: Configuration, *, debug: bool = False) -> dict[str, Any]:
    """The losses of the three ways, or why there are none."""
    import keras

    import fitroom

    ways = {
        "keras": None,
        "whole": fitroom.Recipe(),
        "micro_batches": fitroom.Recipe(micro_batch=MICRO_BATCH),
    }
    losses: dict[str, Any] = {}
    found: dict[str, Any] = {"losses": losses}
    looks_at_batch = False
    for way, recipe in ways.items():
        keras.utils.clear_session()
        keras.utils.set_random_seed(1)
        try:
            with time_limit(MOST_SECONDS), warnings.catch_warnings(action="ignore"):
                model = still(configuration.load(values=True))
                looks_at_batch = any(isinstance(each, keras.layers.BatchNormalization) for each in layers_of(model))
                compiled_for_comparison(configuration, model)
                x, y = batch(configuration, model)
                options: dict[str, Any] = {"batch_size": CPU_BATCH, "epochs": 2, "verbose": 0, "shuffle": False}
                if recipe is None:
                    # Not that of KerasHub's tasks, which prepare texts and images: these are prepared.
                    history = keras.Model.fit(model, x, y, **options)
                else:
                    history = fitroom.fit(model, x, y, recipe=recipe, **options)
                losses[way] = [float(each) for each in history.history["loss"]]
        except fitroom.FitroomError as error:
            _show(debug)
            found[f"{way}_refused"] = str(error)
        except BaseException as error:
            _show(debug)
            if isinstance(error, KeyboardInterrupt):
                raise
            found[f"{way}_failed"] = f"{type(error).__name__}: {str(error).strip()[:300]}"
            if recipe is None:
                return found | {"crashed": f"plain Keras fails: {found[f'{way}_failed'][:200]}"}
    wrong = [way for way in ways if way in losses and way != "keras" and not agrees(configuration, losses, way)]
    if looks_at_batch:
        found["looks_at_batch"] = True
        wrong = [way for way in wrong if way != "micro_batches"]
    failed = [f"{way}: {found[f'{way}_failed']}" for way in ways if f"{way}_failed" in found]
    if wrong or failed:
        found["crashed"] = "; ".join([*(f"{way} differs: {losses[way]} {losses['keras']}" for way in wrong), *failed])
    elif "micro_batches_refused" in found:
        found["refused"] = found["micro_batches_refused"]
    return found | {"agrees": not wrong and not failed, "peak_bytes": 0}


def agrees(configuration: Configuration, losses: dict[str, Any], way: str) -> bool:
    """Whether both losses are those of plain Keras but for rounding."""
    most = TOLERANCE[configuration.precision]
    pairs = zip(losses[way], losses["keras"], strict=True)
    return all(
        abs(one - other) <= most * max(abs(other), 1e-3) or (one != one and other != other) for one, other in pairs
    )


def layers_of(model: Any) -> list[Any]:
    """All layers, at any depth."""
    return list(model._flatten_layers())


def still(model: Any) -> Any:
    """The model with everything switched off that draws random numbers in a step, as far as it has a number for it."""
    names = ("rate", "dropout", "_dropout", "stddev", "recurrent_dropout", "drop_prob", "drop_path")
    for layer in layers_of(model):
        for name in names:
            if isinstance(vars(layer).get(name), float):
                setattr(layer, name, 0.0)
    return model


def compiled_for_comparison(configuration: Configuration, model: Any) -> None:
    """Compile it with SGD: an optimizer that divides by the gradient's size makes much of rounding."""
    import keras

    configuration.compile(model)
    if configuration.family != "optimizer":
        from fitroom.keras_model.twin import compile_arguments

        arguments = compile_arguments(model) | {"optimizer": keras.optimizers.SGD(1e-3)}
        keras.Model.compile(model, **arguments)


def batch(configuration: Configuration, model: Any, size: int = CPU_BATCH) -> tuple[Any, Any]:
    """Random inputs and targets of the shapes that an estimate assumes; whole numbers are 0 or 1."""
    import keras
    import numpy as np

    from fitroom.input_sizes import known_sizes
    from fitroom.keras_model.input_batch import input_specs, symbolic_calls, target_specs
    from fitroom.recipe import Recipe

    random = np.random.default_rng(1)

    def values(spec: Any) -> Any:
        if spec.dtype.startswith(("int", "uint")):
            return random.integers(0, 2, spec.shape).astype(spec.dtype)
        if spec.dtype == "bool":
            return np.ones(spec.shape, "bool")
        return random.random(spec.shape).astype("float32")

    image_size, length = configuration.image_size, configuration.sequence_length
    with symbolic_calls(), known_sizes(configuration.input_shape, image_size=image_size, sequence_length=length):
        x = input_specs(model, size, Recipe(image_size=image_size))
        candidates = [y for y in target_specs(model, x) if y is not None]
    y = candidates[-1 if configuration.with_boxes else 0]
    return keras.tree.map_structure(values, x), keras.tree.map_structure(values, y)


def _show(debug: bool) -> None:
    if debug:
        traceback.print_exc()


if __name__ == "__main__":
    main()
