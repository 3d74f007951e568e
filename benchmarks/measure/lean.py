"""What smaller models cost in accuracy: pruned, separable, adapted and 8-bit, on a folder of flowers.

    python benchmarks/measure/lean.py FLOWERS --backend jax --work FOLDER --out lean.jsonl      # all that trains
    python benchmarks/measure/lean.py FLOWERS --backend jax --work FOLDER --out lean.jsonl --only plain:xception
    python benchmarks/measure/lean.py FLOWERS --work FOLDER --out lean.jsonl --only int8   # with TensorFlow, on any CPU

Each task runs in a process of its own, in which nothing else has used the card, and appends a line to `--out`: for
three seeds the accuracy on the same validation images, which of them were right, the peak in training, the size of the
file and the latency of one image. `--work` keeps the models: structured, unstructured and int8 start from the plain
ones. A task whose line is in `--out` already is left out. On JAX the measured peak holds what the compiler tried
kernels with; `predict` adds, on any machine, the peaks that fitroom estimates for the same steps, and `table` prints
the comparison with 95 % intervals:

    python benchmarks/measure/lean.py predict lean.jsonl
    python benchmarks/measure/lean.py table lean.jsonl
"""

import argparse
import json
import os
import subprocess
import sys
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

TASKS = (
    *("plain:xception", "structured:xception", "unstructured:xception"),
    *("plain:mobilenetv2", "structured:mobilenetv2", "unstructured:mobilenetv2"),
    *("plain:vgg", "separable:vgg"),
    *("three:mobilenetv2", "head:mobilenetv2", "lora:mobilenetv2"),
)
INT8 = "int8"
SIZE, BATCH, SEEDS = 128, 64, (0, 1, 2)
EPOCHS = {"xception": 30, "mobilenetv2": 40, "vgg": 30}
TUNED = 12
"""Epochs of fine-tuning after a change."""

THREE = (0, 2, 4)
"""The classes that the model is trained on before it is adapted to all five."""


def main() -> None:
    """Run the tasks that have no line yet, or print the table."""
    if sys.argv[1:2] == ["table"]:
        print_table(Path(sys.argv[2]))
        return
    if sys.argv[1:2] == ["predict"]:
        predict_peaks(Path(sys.argv[2]))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--backend", choices=("jax", "torch", "tensorflow"), default="jax")
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", nargs="+", choices=(*TASKS, INT8), default=TASKS)
    parser.add_argument("--epochs-factor", type=float, default=1.0, help="fewer epochs, to try the script")
    parser.add_argument("--image-size", type=int, default=SIZE)
    parser.add_argument("--images", type=int, help="no more than so many of each class, to try the script")
    parser.add_argument("--seeds", type=int, default=len(SEEDS))
    parser.add_argument("--here", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.here:
        os.environ |= {"KERAS_BACKEND": arguments.backend, "TF_CPP_MIN_LOG_LEVEL": "3"}
        os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(arguments.work.absolute() / "programs"))
        print("RESULT " + json.dumps(run_task(arguments.here, arguments)))
        return
    arguments.work.mkdir(parents=True, exist_ok=True)
    failed = []
    done = {line["task"] for line in read_lines(arguments.out)}
    for task in arguments.only:
        if task in done:
            continue
        started = time.monotonic()
        finished = subprocess.run(
            [sys.executable, __file__, *sys.argv[1:], "--here", task], stdout=subprocess.PIPE, text=True
        )
        results = [line for line in finished.stdout.splitlines() if line.startswith("RESULT ")]
        if not results:
            print(f"{task} failed", file=sys.stderr)
            failed.append(task)
            continue
        line = json.loads(results[-1][7:]) | {"wall_seconds": round(time.monotonic() - started, 1)}
        with arguments.out.open("a") as file:
            file.write(json.dumps(line) + "\n")
        shown = {name: line[name] for name in ("task", "accuracy", "peak_bytes", "wall_seconds") if name in line}
        print(shown, flush=True)
    sys.exit(1 if failed else 0)


def run_task(task: str, arguments: Any) -> dict[str, Any]:
    """Train, change and measure one kind of model, once for each seed."""
    if task == INT8:
        return measure_int8(arguments)
    kind, _, name = task.partition(":")
    data = read_flowers(arguments)
    runs = [run_seed(kind, name, seed, data, arguments) for seed in SEEDS[: arguments.seeds]]
    import keras

    return {
        "task": task,
        "backend": keras.config.backend(),
        "image_size": arguments.image_size,
        "batch_size": BATCH,
        "accuracy": [run["accuracy"] for run in runs],
        "right": {seed: run["right"] for seed, run in zip(SEEDS, runs, strict=False)},
        "peak_bytes": peak_bytes(),
        "versions": versions(),
        "date": time.strftime("%Y-%m-%d"),
    } | {name: value for name, value in runs[0].items() if name not in ("accuracy", "right")}


def run_seed(kind: str, name: str, seed: int, data: Any, arguments: Any) -> dict[str, Any]:
    """One model: its accuracy, which validation images are right, and its sizes."""
    import keras
    import numpy as np

    from fitroom.lean import PolynomialSchedule, changes, prune, separable

    keras.utils.set_random_seed(seed)
    factor = arguments.epochs_factor
    whole, tuned = max(1, round(EPOCHS[name] * factor)), max(1, round(TUNED * factor))
    place = arguments.work / f"{kind}-{name}-{seed}.keras"
    found: dict[str, Any] = {}
    if kind == "plain":
        model = build(name, arguments.image_size, 5)
        train(model, data, whole, rate=1e-3)
    elif kind == "structured":
        model = prune(load(arguments, name, seed), 0.5)
        train(model, data, tuned, rate=5e-4)
    elif kind == "unstructured":
        model = load(arguments, name, seed)
        steps = tuned * -(-len(data["train"][0]) // BATCH)
        schedule = PolynomialSchedule(end=max(2, steps // 2), frequency=max(1, steps // 20))
        pruning = prune(model, 0.8, structured=False, schedule=schedule)
        train(model, data, tuned, rate=5e-4, callbacks=[pruning])
        found["sparsity"] = round(pruning.sparsity(model), 4)
    elif kind == "separable":
        model = separable(load(arguments, name, seed))
        found["errors"] = {each.layer: round(each.error or 0.0, 3) for each in changes(model).changed}
        train(model, data, tuned, rate=5e-4)
    elif kind == "three":
        images, labels = data["train"]
        chosen = np.isin(labels, THREE)
        model = build(name, arguments.image_size, len(THREE))
        train(model, {"train": (images[chosen], np.searchsorted(THREE, labels[chosen]))}, whole, rate=1e-3)
    else:
        model = prepare_for_five(kind, load(arguments, name, seed, kind="three"))
        train(model, data, tuned, rate=1e-3)
    model.save(place)
    keras.models.load_model(place, compile=False).save(place)  # without the optimizer, adapters merged
    images, labels = data["validation"]
    if kind == "three":
        chosen = np.isin(labels, THREE)
        images, labels = images[chosen], np.searchsorted(THREE, labels[chosen])
    answers = model.predict(images, batch_size=BATCH, verbose=0)
    right = answers.argmax(axis=1) == labels
    latency = one_image_seconds(model, images[:1])
    return found | {
        "accuracy": round(float(right.mean()), 5),
        "right": "".join("1" if each else "0" for each in np.asarray(right)),
        "parameters": model.count_params(),
        "trained_parameters": sum(int(np.prod(weight.shape)) for weight in model.trainable_variables),
        "file_bytes": place.stat().st_size,
        "compressed_bytes": compressed_bytes(place),
        "latency_seconds": latency,
    }


def prepare_for_five(kind: str, model: Any) -> Any:
    """A model of three classes with a new head for five: "head" trains that alone, "lora" adapters as well."""
    import keras

    from fitroom.lean import adapt

    head = keras.layers.Dense(5, activation="softmax", dtype="float32", name="five")
    changed = keras.Model(model.inputs, head(model.layers[-1].input))
    if kind == "lora":
        pointwise = [layer.name for layer in model.layers if getattr(layer, "kernel_size", None) == (1, 1)]
        return adapt(changed, 8, layers=pointwise, train=["five"])
    for layer in changed.layers[:-1]:
        layer.trainable = False
    return changed


def predict_peaks(out: Path) -> None:
    """Add the estimated peak of each step that was measured, by its own backend."""
    lines = read_lines(out)
    os.environ |= {"KERAS_BACKEND": lines[0].get("backend", "jax"), "JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "3"}
    import fitroom
    from fitroom.lean import prune, separable

    for line in lines:
        kind, _, name = line["task"].partition(":")
        if not name:
            continue
        classes = len(THREE) if kind in ("three", "head", "lora") else 5
        model = build(name, line["image_size"], classes)
        if kind == "structured":
            model = prune(model, 0.5)
        elif kind == "separable":
            model = separable(model)
        elif kind in ("head", "lora"):
            model = prepare_for_five(kind, model)
        model.compile("adam", "sparse_categorical_crossentropy")
        line["predicted_peak_bytes"] = fitroom.estimate(model, line["batch_size"], gpu="H200").peak_bytes
        print(line["task"], line["predicted_peak_bytes"], flush=True)
    out.write_text("".join(json.dumps(line) + "\n" for line in lines))


def build(name: str, size: int, classes: int) -> Any:
    """A classifier of pixel values from 0 to 255, with random weights."""
    import keras
    from keras import layers

    inputs = keras.Input((size, size, 3))
    x = layers.Rescaling(1 / 127.5, -1.0)(inputs)
    if name == "vgg":
        for filters, count in ((32, 2), (64, 2), (128, 2), (256, 2)):
            for _ in range(count):
                x = layers.Conv2D(filters, 3, padding="same", use_bias=False)(x)
                x = layers.ReLU()(layers.BatchNormalization(momentum=0.9)(x))
            x = layers.MaxPooling2D(2)(x)
        x = layers.GlobalAveragePooling2D()(x)
    else:
        makers = {"xception": keras.applications.Xception, "mobilenetv2": keras.applications.MobileNetV2}
        x = makers[name](weights=None, include_top=False, pooling="avg", input_tensor=x).output
    outputs = layers.Dense(classes, activation="softmax", dtype="float32", name="classes")(layers.Dropout(0.3)(x))
    model = keras.Model(inputs, outputs, name=name)
    for layer in model.layers:
        if isinstance(layer, layers.BatchNormalization):
            layer.momentum = 0.9  # some hundred updates in all
    return model


def train(model: Any, data: Any, epochs: int, *, rate: float, callbacks: Any = ()) -> None:
    """Adam with a cosine schedule; each epoch the images are flipped and moved at random."""
    import keras
    import numpy as np

    images, labels = data["train"]
    steps = epochs * -(-len(images) // BATCH)
    warm_up = min(100, steps // 10)
    schedule = keras.optimizers.schedules.CosineDecay(
        rate / 10, steps, warmup_target=rate, warmup_steps=max(1, warm_up)
    )
    model.compile(keras.optimizers.Adam(schedule), "sparse_categorical_crossentropy")
    random = np.random.default_rng(0)
    for epoch in range(epochs):
        order = random.permutation(len(images))
        moved = images[order]
        flips = random.random(len(images)) < 0.5
        moved[flips] = moved[flips, :, ::-1]
        shift = random.integers(-12, 13, 2)
        moved = np.roll(moved, shift, axis=(1, 2))
        model.fit(
            moved, labels[order], batch_size=BATCH, shuffle=False, verbose=0, initial_epoch=epoch, epochs=epoch + 1,
            callbacks=list(callbacks),
        )  # fmt: skip


def load(arguments: Any, name: str, seed: int, kind: str = "plain") -> Any:
    """The model of a seed that a change starts from."""
    import keras

    return keras.models.load_model(arguments.work / f"{kind}-{name}-{seed}.keras", compile=False)


def measure_int8(arguments: Any) -> dict[str, Any]:
    """The plain models as 8-bit files, against the model in float: the same class, the size, the latency."""
    import keras
    import numpy as np

    from fitroom.lean.export.export import export_model
    from fitroom.lean.export.running import latency_seconds, open_file

    images, labels = read_flowers(arguments)["validation"]
    lines = []
    for name in ("xception", "mobilenetv2"):
        for format_name in ("litert", "onnx"):
            for seed in SEEDS[: arguments.seeds]:
                place = arguments.work / f"plain-{name}-{seed}.keras"
                if not place.exists():
                    print(f"there is no {place}: run plain:{name} first", file=sys.stderr)
                    continue
                model = keras.models.load_model(place, compile=False)
                expected = model.predict(images, batch_size=BATCH, verbose=0).argmax(axis=1)
                exported = export_model(place, format_name, int8=True, images=arguments.folder)
                run = open_file(format_name, Path(exported.path))
                given = images.astype("float32")
                found = np.concatenate([run(given[n : n + 1]) for n in range(len(given))]).argmax(axis=1)
                lines.append(
                    {
                        "model": name,
                        "format": format_name,
                        "seed": seed,
                        "agreement": round(float((found == expected).mean()), 5),
                        "float_accuracy": round(float((expected == labels).mean()), 5),
                        "accuracy": round(float((found == labels).mean()), 5),
                        "size_bytes": exported.size_bytes,
                        "float_bytes": 4 * model.count_params(),
                        "quantized_share": exported.quantized_share,
                        "latency_seconds": latency_seconds(run, given[:1]),
                    }
                )
    return {"task": INT8, "files": lines, "versions": versions(), "date": time.strftime("%Y-%m-%d")}


def read_flowers(arguments: Any) -> dict[str, Any]:
    """Training and validation images as uint8: every fifth of a class is for validation, in the order of the names."""
    import numpy as np

    from fitroom.data import read_picture

    kept = arguments.work / f"flowers-{arguments.image_size}-{arguments.images}.npz"
    if not kept.exists():
        splits: dict[str, Any] = {"train": ([], []), "validation": ([], [])}
        folders = sorted(each for each in arguments.folder.iterdir() if each.is_dir())
        with ThreadPoolExecutor() as pool:
            for label, folder in enumerate(folders):
                files = sorted(folder.glob("*.jpg"))[: arguments.images]
                read = list(pool.map(lambda file: read_picture(file, arguments.image_size, "crop"), files))
                for number, image in enumerate(read):
                    images, labels = splits["train" if number % 5 else "validation"]
                    images.append(image)
                    labels.append(label)
        arrays = {
            f"{split}_{part}": np.stack(values) if part == "images" else np.array(values)
            for split, pair in splits.items()
            for part, values in zip(("images", "labels"), pair, strict=True)
        }
        np.savez(kept, **arrays)
    arrays = dict(np.load(kept))
    return {split: (arrays[f"{split}_images"], arrays[f"{split}_labels"]) for split in ("train", "validation")}


def one_image_seconds(model: Any, image: Any) -> float:
    """The median time to predict one image."""
    from fitroom.lean.export.running import latency_seconds

    return latency_seconds(model.predict_on_batch, image.astype("float32"))


def compressed_bytes(path: Path) -> int:
    """The size of the file with its weights compressed, as a server would send it."""
    packed = path.with_suffix(".zip")
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.write(path, path.name)
    size = packed.stat().st_size
    packed.unlink()
    return size


def peak_bytes() -> int | None:
    """The most that the framework's allocator had in use in this process; None on a CPU."""
    import keras

    backend = keras.config.backend()
    if backend == "jax":
        import jax

        found = (jax.local_devices()[0].memory_stats() or {}).get("peak_bytes_in_use")
    elif backend == "torch":
        import torch

        found = torch.cuda.max_memory_allocated() if torch.cuda.is_available() else None
    else:
        import tensorflow as tf

        cards = tf.config.list_logical_devices("GPU")
        found = tf.config.experimental.get_memory_info(cards[0].name)["peak"] if cards else None
    return None if found is None else int(found)


def versions() -> dict[str, str]:
    """The versions that the figures depend on, and the card."""
    from fitroom.cards.nvml import live_gpus
    from fitroom.keras_model.fingerprint import current_versions

    cards = live_gpus()
    return {name: str(value) for name, value in current_versions().items()} | {
        "gpu": cards[0].name if cards else "none"
    }


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The lines of a result file; none where there is no file."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def interval(task: dict[str, Any], plain: dict[str, Any]) -> tuple[float, float]:
    """The change in accuracy in points, and half of its 95 % interval, paired on images and seeds.

    Seeds and images both vary: the interval is by 10,000 samples of images and of seeds, drawn again.
    """
    import numpy as np

    pairs = [
        np.array([int(a) - int(b) for a, b in zip(task["right"][seed], plain["right"][seed], strict=True)])
        for seed in sorted(set(task["right"]) & set(plain["right"]))
    ]
    table = np.stack(pairs).astype(float)
    random = np.random.default_rng(0)
    means = [
        table[
            np.ix_(random.integers(0, len(table), len(table)), random.integers(0, table.shape[1], table.shape[1]))
        ].mean()
        for _ in range(10_000)
    ]
    low, high = np.percentile(means, [2.5, 97.5])
    return 100 * float(table.mean()), 100 * float(high - low) / 2


def print_table(path: Path) -> None:
    """The comparison as a table of Markdown, for docs/howto/lean.md."""
    lines = {line["task"]: line for line in read_lines(path)}
    print(
        "| model | change | accuracy | against plain | parameters | peak in training | file, compressed | one image |"
    )
    print("|---|---|---:|---:|---:|---:|---:|---:|")
    for task, line in lines.items():
        kind, _, name = task.partition(":")
        if task == INT8:
            continue
        plain = lines.get(f"plain:{name}")
        change = ""
        if plain and kind not in ("plain", "three"):
            points, half = interval(line, plain)
            change = f"{points:+.1f} ± {half:.1f}"
        mean_accuracy = sum(line["accuracy"]) / len(line["accuracy"])
        taken = line.get("predicted_peak_bytes") or line["peak_bytes"]
        peak = "" if taken is None else f"{taken / 2**20:,.0f} MiB"
        print(
            f"| {name} | {kind} | {100 * mean_accuracy:.1f} % | {change} | {line['parameters'] / 1e6:.2f} M | {peak} | "
            f"{line['compressed_bytes'] / 2**20:.1f} MiB | {1000 * line['latency_seconds']:.1f} ms |"
        )
    if INT8 in lines:
        print("\n| model | 8-bit file | same class as float | accuracy, float | 8-bit | times smaller | weights |")
        print("|---|---|---:|---:|---:|---:|---:|")
        for name in ("xception", "mobilenetv2"):
            for format_name in ("litert", "onnx"):
                some = [each for each in lines[INT8]["files"] if (each["model"], each["format"]) == (name, format_name)]
                if some:
                    mean = {
                        key: sum(each[key] for each in some) / len(some)
                        for key in some[0]
                        if key not in ("model", "format")
                    }
                    print(
                        f"| {name} | {format_name} | {100 * mean['agreement']:.1f} % | "
                        f"{100 * mean['float_accuracy']:.1f} % | "
                        f"{100 * mean['accuracy']:.1f} % | {mean['float_bytes'] / mean['size_bytes']:.1f} | "
                        f"{100 * mean['quantized_share']:.1f} % |"
                    )


if __name__ == "__main__":
    main()
