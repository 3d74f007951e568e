"""What recomputing segments saves and costs: predicted anywhere, measured where there is a card.

    python benchmarks/measure/remat.py predict --backend jax --model Xception --remat none blocks
    python benchmarks/measure/remat.py measure --backend jax --remat none blocks 6GiB --precision mixed_bfloat16

The step of `fitroom.fit` at batch 64 with Adam. One line of results/remat.jsonl each: the peak, and for `measure` the
seconds a step, both of a process of its own. Ratios are against `none` of the same call.

On JAX a step is compiled in one process and measured in another, which finds it in the cache: the scratch memory of
autotuning would hide the peak of the step. `compile --programs FOLDER` does the first half beforehand, so that several
can compile side by side; with `--turns FILE` several `measure` wait for one another only while they are timed.
"""

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
from harness.turns import turn

RESULTS = Path(__file__).parents[1] / "results" / "remat.jsonl"
SIZES = {"Xception": 299, "InceptionV3": 299}
"""Pictures of the others are of 224 pixels."""
STEPS = 8
ROUNDS = 4
"""The best of them counts: what disturbs a step only makes it slower."""


def main() -> None:
    """One line a choice."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("predict", "compile", "measure"))
    parser.add_argument("--backend", choices=("jax", "torch", "tensorflow"), required=True)
    parser.add_argument("--model", default="Xception")
    parser.add_argument("--remat", nargs="+", default=["none", "blocks"], help="none, blocks or a size such as 6GiB")
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--micro-batch", type=int)
    parser.add_argument("--jit", action=argparse.BooleanOptionalAction, help="jit_compile on TensorFlow")
    parser.add_argument("--gpu", default="H200", help="the card of a prediction")
    parser.add_argument("--programs", type=Path, help="a folder for what JAX compiled")
    parser.add_argument("--turns", type=Path, help="a file: those that name it are timed one by one")
    parser.add_argument("--alone", action="store_true", help="compile by turns as well, since XLA times kernels")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    os.environ["KERAS_BACKEND"] = arguments.backend
    if arguments.child:
        found = {"predict": predicted, "compile": compiled, "measure": measured}[arguments.what]
        print("RESULT " + json.dumps(found(arguments, arguments.remat[0])))
        return
    if arguments.programs is None:
        arguments.programs = Path(tempfile.mkdtemp())
    if arguments.what == "compile":
        for remat in arguments.remat:
            compile_beforehand(arguments, remat)
        return
    lines = [asked(arguments, remat) for remat in arguments.remat]
    plain = next((line for line in lines if line["remat"] == "none"), None)
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    with arguments.out.open("a") as file:
        for line in lines:
            if plain is not None:
                line |= {
                    f"{name}_ratio": ratio(line, plain, name) for name in ("peak_bytes", "activation_bytes", "seconds")
                }
            file.write(json.dumps(line) + "\n")
            print(json.dumps(line), flush=True)


def asked(arguments: argparse.Namespace, remat: str) -> dict[str, Any]:
    """One choice in a process of its own."""
    if arguments.what == "measure" and arguments.backend == "jax":
        compile_beforehand(arguments, remat)
    return {
        "what": arguments.what,
        "backend": arguments.backend,
        "jit": arguments.jit,
        "model": arguments.model,
        "precision": arguments.precision,
        "batch_size": arguments.batch_size,
        "micro_batch": arguments.micro_batch,
        "remat": remat,
        **child(arguments, arguments.what, remat),
        "date": time.strftime("%Y-%m-%d"),
    }


def compile_beforehand(arguments: argparse.Namespace, remat: str) -> None:
    """Have the programs of a step in the folder, unless they are there."""
    words = (arguments.model, arguments.precision, arguments.batch_size, arguments.micro_batch, remat)
    done = arguments.programs / "-".join(map(str, words))
    if not done.exists():
        child(arguments, "compile", remat)
        done.touch()


def child(arguments: argparse.Namespace, what: str, remat: str) -> dict[str, Any]:
    """The result of another process that does this for one choice."""
    kept = [argument for argument in sys.argv[2:] if argument not in arguments.remat and argument != "--remat"]
    environment = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "2"}
    if what == "predict":
        environment["JAX_PLATFORMS"] = "cpu"
    else:
        environment["JAX_COMPILATION_CACHE_DIR"] = str(arguments.programs)
    command = [sys.executable, __file__, what, *kept, "--remat", remat, "--child"]
    finished = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True)
    results = [line for line in finished.stdout.splitlines() if line.startswith("RESULT ")]
    if not results:
        raise SystemExit(f"{remat} gave no result (exit code {finished.returncode})")
    found: dict[str, Any] = json.loads(results[-1][7:])
    return found


def ratio(line: dict[str, Any], plain: dict[str, Any], name: str) -> float | None:
    """How many times that of nothing recomputed."""
    return round(line[name] / plain[name], 4) if line.get(name) and plain.get(name) else None


def predicted(arguments: argparse.Namespace, remat: str) -> dict[str, Any]:
    """By `fitroom.estimate`, with or without a card."""
    import fitroom

    model = built(arguments)
    estimate = fitroom.estimate(model, arguments.batch_size, recipe=recipe(arguments, remat), gpu=arguments.gpu)
    seconds = seconds_by_roofline(
        model,
        backend=arguments.backend,
        gpu=arguments.gpu,
        batch_size=arguments.batch_size,
        micro_batch=arguments.micro_batch,
        precision=arguments.precision,
        jit=arguments.jit is not False,
        remat=estimate.recipe.remat,
    )
    return {
        "peak_bytes": estimate.peak_bytes,
        "required_bytes": estimate.required_bytes,
        "activation_bytes": estimate.by_kind["activations"],
        "predicted_seconds": round(seconds, 5),
        "gpu": estimate.gpu,
        "versions": dict(estimate.versions),
    }


def seconds_by_roofline(
    model: Any,
    *,
    backend: str,
    gpu: str,
    batch_size: int,
    micro_batch: int | None,
    precision: str,
    jit: bool,
    remat: Any,
) -> float:
    """How long a step should take on a card."""
    from fitroom.cards.catalogue import find_card
    from fitroom.keras_model.recompute import resident_bytes
    from fitroom.planning.roofline.step_time import StepTime
    from fitroom.remat.chooser import SegmentChooser

    step_time = StepTime.of_model(model, backend=backend, card=find_card(gpu))
    assert step_time is not None
    at_once = micro_batch or batch_size
    segmentation = SegmentChooser.of_model(model).choose(remat, at_once, resident_bytes(model, at_once))
    return step_time.seconds(
        batch_size=batch_size, micro_batch=at_once, precision=precision, jit=jit, segments=segmentation.segments
    )


def compiled(arguments: argparse.Namespace, remat: str) -> dict[str, Any]:
    """One step of `fitroom.fit`, for the sake of its programs."""
    train(arguments, remat, epochs=1, steps=1, callbacks=[])
    return {}


def measured(arguments: argparse.Namespace, remat: str) -> dict[str, Any]:
    """By `fitroom.fit` on the card: the peak in steady state where it can be told apart, and the seconds a step."""
    import keras

    from fitroom.backends.choose import current_backend

    backend = current_backend()
    device = backend.devices()[0]
    begun = 0.0
    seconds: list[float] = []
    with contextlib.ExitStack() as alone:
        if arguments.alone:
            alone.enter_context(turn(arguments.turns))

        def first_step_done(batch: int, logs: Any) -> None:
            if not arguments.alone and not seconds and batch == 0:  # it must not keep the others waiting until here
                alone.enter_context(turn(arguments.turns))

        def begin(epoch: int, logs: Any) -> None:
            nonlocal begun
            if epoch == 1 and backend.can_reset_peak:
                backend.reset_peak(device)
            begun = time.perf_counter()

        def end(epoch: int, logs: Any) -> None:
            float(logs["loss"])  # waits for the device
            seconds.append((time.perf_counter() - begun) / STEPS)

        watch = keras.callbacks.LambdaCallback(
            on_epoch_begin=begin, on_epoch_end=end, on_train_batch_end=first_step_done
        )
        told = train(arguments, remat, epochs=1 + ROUNDS, steps=STEPS, callbacks=[watch])
    return {
        "peak_bytes": backend.read_memory(device).peak_bytes,
        "seconds": round(min(seconds[1:]), 5),
        "out_of_memory": told["out_of_memory"],
        "gpu": device.description,
        "versions": {"keras": keras.__version__, arguments.backend: __import__(arguments.backend).__version__},
    }


def train(arguments: argparse.Namespace, remat: str, *, epochs: int, steps: int, callbacks: list[Any]) -> Any:
    """`fitroom.fit` on one batch again and again; what it says of itself."""
    import keras
    import numpy as np

    import fitroom

    model = built(arguments)
    random = np.random.default_rng(0)
    x = random.random((arguments.batch_size, *model.input_shape[1:]), "float32")
    y = random.integers(0, 5, arguments.batch_size).astype("int32")

    class Batches(keras.utils.PyDataset):
        def __len__(self) -> int:
            return steps

        def __getitem__(self, index: int) -> tuple[Any, Any]:
            return x, y

    history = fitroom.fit(
        model,
        Batches(),
        epochs=epochs,
        verbose=0,
        callbacks=callbacks,
        shuffle=False,
        recipe=recipe(arguments, remat),
    )
    return history.fitroom


def built(arguments: argparse.Namespace) -> Any:
    """The model, compiled."""
    import keras

    keras.config.set_dtype_policy(arguments.precision)
    size = SIZES.get(arguments.model, 224)
    model = getattr(keras.applications, arguments.model)(weights=None, input_shape=(size, size, 3), classes=5)
    jit = {} if arguments.jit is None else {"jit_compile": arguments.jit}
    model.compile("adam", "sparse_categorical_crossentropy", **jit)
    return model


def recipe(arguments: argparse.Namespace, remat: str) -> Any:
    """The choice as `fit` and `estimate` take it."""
    import fitroom

    choice = remat if remat in ("none", "blocks") else fitroom.Remat(budget=remat)
    return fitroom.Recipe(remat=choice, jit=arguments.jit, micro_batch=arguments.micro_batch)


if __name__ == "__main__":
    main()
