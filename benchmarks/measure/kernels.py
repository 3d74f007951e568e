"""What fused kernels save: peak and speed of a training step, predicted and measured, and capped runs.

    python benchmarks/measure/kernels.py --out results/kernels.jsonl                  # all cases, a process each
    python benchmarks/measure/kernels.py --only xception-bf16 --out results/kernels.jsonl

Each case runs Keras's own step and the one with fused kernels, in a process of its own each: 4 steps to warm up, then
15 that are timed, on a batch that is on the card. Then the fused one once more, capped at the bytes that its estimate
requires (`capped`: whether five steps ran). `--profile FOLDER` also writes what took longest: kernels on the card,
operations and functions of Python on the host. `--tiny` is for a machine without a card: each case runs from end to end
on a few small samples.

    python benchmarks/measure/kernels.py --predict --only gpt2-dropout --out results/kernels.jsonl
    python benchmarks/measure/kernels.py --rounding --out results/kernels.jsonl

The first estimates the cases alone, which needs no card. The second says how far a BatchNormalization of TensorFlow's
graph mode is from float64 with Keras's kernels and with fused ones.

    python benchmarks/measure/kernels.py --speeds --out results/kernels.jsonl

times steps of eight models with fused kernels in one process, for predict/speed_factors.py: 2 minutes on an H200.

    python benchmarks/measure/kernels.py --beside FOLDER

runs what stands beside these cases, by other scripts: timm's Xception, and what is planned in 16 GiB against Keras's
largest batch, on PyTorch and JAX. The plans are kept in FOLDER. timm, and KerasHub for the cases `gpt2`, have to be
installed; a case whose library is missing is a line with its error.
"""

import argparse
import contextlib
import cProfile
import json
import os
import pstats
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parents[1] / "results" / "kernels.jsonl"
CASES: dict[str, tuple[str, str, int, int]] = {
    "xception-bf16": ("Xception", "mixed_bfloat16", 299, 64),
    "xception-f32": ("Xception", "float32", 299, 64),
    "resnet50-bf16": ("ResNet50", "mixed_bfloat16", 224, 64),
    "mobilenetv2-bf16": ("MobileNetV2", "mixed_bfloat16", 224, 64),
    "efficientnetb0-bf16": ("EfficientNetB0", "mixed_bfloat16", 224, 64),
    "densenet121-bf16": ("DenseNet121", "mixed_bfloat16", 224, 64),
    "lstm": ("lstm", "float32", 200, 64),
    "lstm-masked": ("lstm-masked", "float32", 200, 64),
    "lstm-bidirectional-masked": ("lstm-bidirectional-masked", "float32", 200, 64),
    "gpt2": ("gpt2", "mixed_bfloat16", 1024, 8),
    "gpt2-dropout": ("gpt2-dropout", "mixed_bfloat16", 1024, 8),
    "xception-tensorflow-f32": ("Xception", "float32", 299, 64),
    "xception-tensorflow-bf16": ("Xception", "mixed_bfloat16", 299, 64),
    "resnet50-tensorflow-f32": ("ResNet50", "float32", 224, 64),
    "resnet50-tensorflow-bf16": ("ResNet50", "mixed_bfloat16", 224, 64),
    "mobilenetv3-tensorflow-f32": ("MobileNetV3Large", "float32", 224, 64),
    "mobilenetv3-tensorflow-bf16": ("MobileNetV3Large", "mixed_bfloat16", 224, 64),
}
"""Model, precision, pixels or words, batch."""

TINY = {"gpt2": (16, 2), "gpt2-dropout": (16, 2), "lstm": (8, 2), "lstm-masked": (8, 2)}
TINY_IMAGES = (75, 2)
"""Pixels or words, and batch, with --tiny."""

NOT_SERVED = ("gpt2",)
"""Cases of Keras's own step alone: no layer of theirs is served by a fused kernel."""

DROPOUT = ("gpt2-dropout",)
"""Cases in which `fused` is `Recipe(attention_dropout="fused")`, with other random numbers."""

ON_TENSORFLOW = tuple(name for name in CASES if "tensorflow" in name)
"""Cases of a TensorFlow step that is not jitted."""

_PLAN = "plan.py"
_IN_16_GIB = ("--model", "Xception", "--budget", "16GiB")
BESIDE: tuple[tuple[str, ...], ...] = (
    ("torch_twin.py", "measure", "--ways", "none", "--precision", "mixed_bfloat16"),
    (_PLAN, "make", "--backend", "torch", *_IN_16_GIB, "--precision", "mixed_bfloat16", "--to", "FOLDER/torch"),
    (_PLAN, "user", "--backend", "torch", *_IN_16_GIB, "--precision", "float32"),
    (_PLAN, "user", "--backend", "torch", *_IN_16_GIB, "--precision", "mixed_bfloat16"),
    (_PLAN, "make", "--backend", "jax", *_IN_16_GIB, "--precision", "mixed_bfloat16", "--to", "FOLDER/jax"),
)
"""Scripts of this folder and their arguments; plans that were made are run after them."""

ROUNDED = ("outputs", "gradient of the images", "of gamma", "of beta", "moving mean", "moving variance")
WARM, TIMED = 4, 15
CHILD_SECONDS = 200

SPEEDS = (
    "Xception",
    "ResNet50",
    "MobileNetV3Large",
    "EfficientNetB0",
    "DenseNet121",
    "InceptionV3",
    "VGG16",
    "ConvNeXtTiny",
)
SPEED_SECONDS = 200
"""After so long no further model is begun."""

SPEED_STEPS: tuple[tuple[int, int | None, str], ...] = ((64, None, "none"), (64, 16, "none"), (64, None, "blocks"))
"""Batch, micro-batch, remat."""


def main() -> None:
    """Measure the cases that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--only", nargs="*", choices=tuple(CASES), default=list(CASES))
    parser.add_argument("--kernels", nargs="*", choices=("keras", "fused"), default=["keras", "fused"])
    parser.add_argument("--no-cap", action="store_true", help="leave the capped run out")
    parser.add_argument("--no-estimate", action="store_true", help="leave the prediction out, and the capped run")
    parser.add_argument("--profile", type=Path)
    parser.add_argument("--speeds", action="store_true", help="time steps of eight models instead")
    parser.add_argument("--beside", type=Path, metavar="FOLDER", help="run what the cases are compared with instead")
    parser.add_argument("--tensorflow", default=sys.executable, metavar="PYTHON", help="the Python that has TensorFlow")
    parser.add_argument("--predict", action="store_true", help="estimate the cases, and run none")
    parser.add_argument("--rounding", action="store_true", help="compare both kernels with float64 instead")
    parser.add_argument("--tiny", action="store_true", help="a few small samples, to see that it runs")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.tiny:
        shrink()
    if arguments.one:
        name, kernels, limit = arguments.one.split(",")
        if name in ON_TENSORFLOW:
            found, predict = measure_tensorflow(name, kernels, int(limit) or None, runs=not arguments.predict)
        else:
            found, predict = measure(name, kernels, int(limit) or None, arguments.profile, runs=not arguments.predict)
        if not (int(limit) or arguments.no_estimate):
            estimate = predict()
            found |= {"predicted_bytes": estimate.peak_bytes, "required_bytes": estimate.required_bytes}
        print(json.dumps(found))
        return
    if arguments.rounding:
        measure_rounding(arguments.out)
        return
    if arguments.speeds:
        measure_speeds(arguments.out)
        return
    if arguments.beside:
        run_beside(arguments.beside)
        return
    tiny, asked = ["--tiny"] if arguments.tiny else [], vars(arguments)
    for name in arguments.only:
        for kernels in arguments.kernels:
            if kernels == "fused" and name in NOT_SERVED:
                continue
            python = arguments.tensorflow if name in ON_TENSORFLOW else sys.executable
            more = [*(["--profile", str(arguments.profile)] if arguments.profile else [])]
            more += [*tiny, *(f"--{flag}" for flag in ("no-estimate", "predict") if asked[flag.replace("-", "_")])]
            found = run_child(python, name, kernels, 0, more)
            if kernels == "fused" and not (arguments.no_cap or arguments.predict) and "required_bytes" in found:
                found["capped"] = run_child(python, name, kernels, found["required_bytes"], tiny)
            with arguments.out.open("a") as lines:
                lines.write(json.dumps(found) + "\n")
            print(json.dumps(found), flush=True)


def shrink() -> None:
    """Make all cases small."""
    global WARM, TIMED
    WARM, TIMED = 1, 1
    for name, (model, precision, _, _) in CASES.items():
        CASES[name] = (model, precision, *TINY.get(name.replace("-bidirectional", ""), TINY_IMAGES))


def run_beside(folder: Path) -> None:
    """Run what the cases are compared with; each script adds lines to its own file of results."""
    for script, *options in BESIDE:
        _run_script(script, [option.replace("FOLDER", str(folder)) for option in options])
    for plan in sorted(folder.glob("*/*.json")):
        _run_script(_PLAN, ["run", str(plan)])


def _run_script(script: str, options: list[str]) -> None:
    done = subprocess.run([sys.executable, str(Path(__file__).with_name(script)), *options])
    print(
        f"{script} {' '.join(options)}: {'done' if done.returncode == 0 else f'failed ({done.returncode})'}", flush=True
    )


def run_child(python: str, name: str, kernels: str, limit_bytes: int, more: list[str]) -> dict[str, Any]:
    """Measure in a process of its own. One that fails or takes too long is a line with its error."""
    command = [python, __file__, "--one", f"{name},{kernels},{limit_bytes}", *more]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=CHILD_SECONDS)
        return dict(json.loads(done.stdout.splitlines()[-1]))
    except (IndexError, ValueError):
        return {"case": name, "kernels": kernels, "error": done.stderr[-600:]}
    except (OSError, subprocess.TimeoutExpired) as error:
        return {"case": name, "kernels": kernels, "error": str(error)[-600:]}


Measured = tuple[dict[str, Any], Callable[[], Any]]
"""What was found, and a function that estimates the same step."""


def measure(name: str, kernels: str, limit_bytes: int | None, profile: Path | None, *, runs: bool) -> Measured:
    """Measure one case in this process; unless it `runs`, only say how to predict it."""
    os.environ["KERAS_BACKEND"] = "torch"
    import keras
    import torch

    import fitroom
    from fitroom.backends.torch.train.stepper import TorchStepper
    from fitroom.batch import Batch

    model_name, precision, size, batch_size = CASES[name]
    keras.utils.set_random_seed(1)
    keras.mixed_precision.set_global_policy(precision)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if limit_bytes and device.type == "cuda":
        torch.cuda.set_per_process_memory_fraction(limit_bytes / torch.cuda.get_device_properties(0).total_memory)
    model, x, y = build(model_name, size, batch_size, device)
    served: dict[str, Any] = (
        {} if name in NOT_SERVED else {"attention_dropout" if name in DROPOUT else "kernels": kernels}
    )
    lengths = {part: tuple(tensor.shape[1:]) for part, tensor in x.items()} if isinstance(x, dict) else None
    recipe = fitroom.Recipe(precision=precision, **served)
    predict = partial(fitroom.estimate, model, batch_size, recipe=recipe, gpu="H200", input_shape=lengths)
    if not runs:
        return predicted_line(name, kernels, {"torch": torch.__version__}), predict
    stepper = TorchStepper(model, **served)
    batch = Batch(x=x, y=y)

    def run(steps: int) -> float:
        begin = time.perf_counter()
        for _ in range(steps):
            stepper.train(batch, batch_size) if kernels == "fused" else model.train_step((x, y))
        if device.type == "cuda":
            torch.cuda.synchronize()
        return (time.perf_counter() - begin) / steps

    stepper.prepare(batch)
    model.train(True)
    if limit_bytes:
        seconds = run(5)
        return {"ran": True, "limit_bytes": limit_bytes, "img_per_s": round(batch_size / seconds, 1)}, predict
    run(WARM)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    seconds = run(TIMED)
    found: dict[str, Any] = {"what": "case", "case": name, "kernels": kernels, "batch_size": batch_size}
    found["samples_per_s"] = round(batch_size / seconds, 1)
    if device.type == "cuda":
        found["peak_bytes"] = torch.cuda.max_memory_allocated()
        found["reserved_bytes"] = torch.cuda.max_memory_reserved()
        found["device"] = torch.cuda.get_device_name()
    if profile:
        write_profile(profile / f"{name}-{kernels}.txt", lambda: run(3))
    return found | {
        "versions": {"keras": keras.__version__, "torch": torch.__version__, "cudnn": torch.backends.cudnn.version()},
        "date": time.strftime("%Y-%m-%d"),
    }, predict


def predicted_line(name: str, kernels: str, versions: dict[str, str]) -> dict[str, Any]:
    """The line of a case that is not run."""
    import keras

    line = {"what": "predicted", "case": name, "kernels": kernels, "batch_size": CASES[name][3], "device": "H200"}
    return line | {"versions": {"keras": keras.__version__} | versions, "date": time.strftime("%Y-%m-%d")}


def measure_tensorflow(name: str, kernels: str, limit_bytes: int | None, *, runs: bool) -> Measured:
    """Measure a case of a TensorFlow step that is not jitted in this process."""
    os.environ["KERAS_BACKEND"] = "tensorflow"
    from fitroom.backends.choose import limit_memory

    if limit_bytes:
        limit_memory("tensorflow", limit_bytes)
    import keras
    import tensorflow as tf

    import fitroom
    from fitroom.backends.tensorflow.train.computation import Computation

    model_name, precision, size, batch_size = CASES[name]
    keras.utils.set_random_seed(1)
    keras.mixed_precision.set_global_policy(precision)
    cards = tf.config.list_physical_devices("GPU")
    model = getattr(keras.applications, model_name)(weights=None, classes=5, input_shape=(size, size, 3))
    model.compile("adam", "sparse_categorical_crossentropy", jit_compile=False)
    x = tf.random.uniform((batch_size, size, size, 3))
    y = tf.random.uniform((batch_size,), maxval=5, dtype=tf.int32)
    model.optimizer.build(model.trainable_variables)
    train = Computation(model, remat=None, kernels=kernels).of_step(model.train_step, batch_size)
    step = tf.function(lambda: train((x, y)), autograph=False)
    recipe = fitroom.Recipe(kernels=kernels, precision=precision, jit=False)
    predict = partial(fitroom.estimate, model, batch_size, recipe=recipe, gpu="H200")

    if not runs:
        return predicted_line(name, kernels, {"tensorflow": tf.__version__}), predict

    def run(steps: int) -> float:
        begin = time.perf_counter()
        for _ in range(steps):
            logs = step()
        float(logs["loss"])  # waits for the card
        return (time.perf_counter() - begin) / steps

    run(WARM)
    if limit_bytes:
        return {"ran": True, "limit_bytes": limit_bytes, "img_per_s": round(batch_size / run(TIMED), 1)}, predict
    if cards:
        tf.config.experimental.reset_memory_stats("GPU:0")
    found: dict[str, Any] = {"what": "case", "case": name, "kernels": kernels, "batch_size": batch_size}
    found["samples_per_s"] = round(batch_size / run(TIMED), 1)
    if cards:
        found["peak_bytes"] = tf.config.experimental.get_memory_info("GPU:0")["peak"]
        found["device"] = tf.config.experimental.get_device_details(cards[0]).get("device_name")
    return found | {
        "versions": {"keras": keras.__version__, "tensorflow": tf.__version__},
        "date": time.strftime("%Y-%m-%d"),
    }, predict


def measure_rounding(out: Path) -> None:
    """The error of a BatchNormalization's outputs, gradients and statistics, relative to the largest in float64."""
    os.environ["KERAS_BACKEND"] = "tensorflow"
    import keras
    import numpy as np
    import tensorflow as tf

    from fitroom.backends.tensorflow.kernels.serve import FusedKernels

    random = np.random.default_rng(0)
    upstream = random.normal(size=(32, 28, 28, 64))
    for mean in (0, 10, 1000):
        images = (mean + random.normal(size=upstream.shape)).astype("float32")
        found = {}
        for kernels in ("float64", "keras", "fused"):
            dtype = "float64" if kernels == "float64" else "float32"
            layer = keras.layers.BatchNormalization(dtype=dtype)
            model = keras.Sequential([keras.Input(images.shape[1:]), layer])
            x, weights = tf.constant(images, dtype), tf.constant(upstream, dtype)

            @tf.function(autograph=False)  # type: ignore[untyped-decorator]
            def step(model: Any = model, layer: Any = layer, x: Any = x, weights: Any = weights) -> Any:
                with tf.GradientTape() as tape:
                    tape.watch(x)
                    outputs = model(x, training=True)
                    loss = tf.reduce_sum(outputs * weights)
                gradients = tape.gradient(loss, [x, layer.gamma.value, layer.beta.value])
                return outputs, *gradients, layer.moving_mean.value, layer.moving_variance.value

            with FusedKernels(model).during() if kernels == "fused" else contextlib.nullcontext():
                found[kernels] = [each.numpy().astype("float64") for each in step()]
        for kernels in ("keras", "fused"):
            errors = {
                part: float(np.abs(one - exact).max() / np.abs(exact).max())
                for part, one, exact in zip(ROUNDED, found[kernels], found["float64"], strict=True)
            }
            line = {"what": "rounding", "backend": "tensorflow", "mean": mean, "kernels": kernels, "errors": errors}
            line |= {"device": [each.device_type for each in tf.config.list_physical_devices()][-1]}
            with out.open("a") as lines:
                lines.write(json.dumps(line | {"date": time.strftime("%Y-%m-%d")}) + "\n")
            print(json.dumps(line), flush=True)


def measure_speeds(out: Path) -> None:
    """Time steps of several models with fused kernels; a line a step."""
    os.environ["KERAS_BACKEND"] = "torch"
    import keras
    import torch

    from fitroom.backends.torch.train.stepper import TorchStepper
    from fitroom.batch import Batch

    start = time.monotonic()
    for name in SPEEDS:
        for precision in ("mixed_bfloat16", "float32"):
            if time.monotonic() - start > SPEED_SECONDS:
                return
            keras.mixed_precision.set_global_policy(precision)
            size = 299 if name in ("Xception", "InceptionV3") else 224
            model, x, y = build(name, size, 64, torch.device("cuda"))
            for batch_size, micro_batch, remat in SPEED_STEPS:
                stepper = TorchStepper(model, kernels="fused", remat=remat)
                batch = Batch(x=x[:batch_size], y=y[:batch_size])
                stepper.prepare(batch)
                for _ in range(3):
                    stepper.train(batch, micro_batch or batch_size)
                torch.cuda.synchronize()
                torch.cuda.reset_peak_memory_stats()
                begin = time.perf_counter()
                for _ in range(8):
                    stepper.train(batch, micro_batch or batch_size)
                torch.cuda.synchronize()
                seconds = (time.perf_counter() - begin) / 8
                line = {
                    "what": "measure",
                    "backend": "torch",
                    "kernels": "fused",
                    "jit": None,
                    "model": name,
                    "precision": precision,
                    "batch_size": batch_size,
                    "micro_batch": micro_batch,
                    "remat": remat,
                    "peak_bytes": torch.cuda.max_memory_allocated(),
                    "seconds": round(seconds, 5),
                    "device_seconds": round(device_seconds(stepper, batch, micro_batch or batch_size), 5),
                    "out_of_memory": 0,
                    "gpu": torch.cuda.get_device_name(),
                    "versions": {"keras": keras.__version__, "torch": torch.__version__},
                    "date": time.strftime("%Y-%m-%d"),
                }
                with out.open("a") as lines:
                    lines.write(json.dumps(line) + "\n")
                print(name, precision, batch_size, micro_batch, remat, line["seconds"], flush=True)
            del model, stepper, batch, x, y
            torch.cuda.empty_cache()


def device_seconds(stepper: Any, batch: Any, micro_batch: int) -> float:
    """The seconds that the kernels of one step take on the card."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as found:
        stepper.train(batch, micro_batch)
        torch.cuda.synchronize()
    return sum(event.device_time for event in found.events() if str(event.device_type).endswith("CUDA")) / 1e6


def build(name: str, size: int, batch_size: int, device: Any) -> tuple[Any, Any, Any]:
    """A compiled model and a batch on the device."""
    import keras
    import torch

    if name.startswith("gpt2"):
        return build_gpt2(size, batch_size, device, dropout=0.1 if name.endswith("dropout") else 0.0)
    y = torch.randint(0, 5, (batch_size,), device=device)
    if name.startswith("lstm"):
        layers = keras.layers
        around = layers.Bidirectional if "bidirectional" in name else lambda layer: layer
        model = keras.Sequential(
            [
                keras.Input((size,), dtype="int32"),
                layers.Embedding(20000, 128, mask_zero=name.endswith("masked")),
                around(layers.LSTM(64, return_sequences=True)),
                around(layers.LSTM(64)),
                layers.Dense(5, activation="softmax"),
            ]
        )
        x = torch.randint(1, 20000, (batch_size, size), device=device, dtype=torch.int32)
        if name.endswith("masked"):
            x[:, size // 2 :] *= (torch.arange(batch_size, device=device) % 2)[:, None].int()
    else:
        model = getattr(keras.applications, name)(weights=None, classes=5, input_shape=(size, size, 3))
        x = torch.rand(batch_size, size, size, 3, device=device)
    model.compile("adam", "sparse_categorical_crossentropy", jit_compile=False)
    return model, x, y


def build_gpt2(words: int, batch_size: int, device: Any, *, dropout: float) -> tuple[Any, Any, Any]:
    """KerasHub's GPT-2 in its small size, without weights, and a batch on the device."""
    import keras
    import keras_hub
    import torch

    backbone = keras_hub.models.GPT2Backbone(
        vocabulary_size=50257,
        num_layers=12 if words > TINY["gpt2"][0] else 2,
        num_heads=12,
        hidden_dim=768,
        intermediate_dim=3072,
        dropout=dropout,
        max_sequence_length=words,
    )
    model = keras_hub.models.GPT2CausalLM(backbone=backbone)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", loss, metrics=None, jit_compile=False)
    tokens = torch.randint(0, 50257, (batch_size, words), device=device)
    return model, {"token_ids": tokens, "padding_mask": torch.ones_like(tokens)}, tokens


def write_profile(file: Path, run: Any) -> None:
    """Write what three steps take by kernel on the card, and by operation and function of Python on the host."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as found:
        run()
    kernels: dict[str, list[float]] = {}
    for event in found.events():
        if str(event.device_type).endswith("CUDA"):
            entry = kernels.setdefault(event.name[:100], [0.0, 0])
            entry[0] += event.device_time
            entry[1] += 1
    lines = [f"{sum(each[0] for each in kernels.values()) / 3e3:8.2f} ms in all"]
    lines += [
        f"{total / 3e3:8.2f} ms {count / 3:6.0f} {name}"
        for name, (total, count) in sorted(kernels.items(), key=lambda item: -item[1][0])[:40]
    ]
    lines += ["", found.key_averages().table(sort_by="self_cpu_time_total", row_limit=60, max_name_column_width=50)]
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("\n".join(lines) + "\n")
    calls = cProfile.Profile()
    calls.runcall(run)
    with file.with_suffix(".host.txt").open("w") as written:
        for order in ("tottime", "cumtime"):
            pstats.Stats(calls, stream=written).sort_stats(order).print_stats(60)


if __name__ == "__main__":
    main()
