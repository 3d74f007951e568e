"""What smaller models cost in accuracy: pruned, separable, adapted and 8-bit, on a folder of flowers.

    python benchmarks/measure/lean.py FLOWERS --backend jax --work FOLDER --out lean.jsonl --jobs 4    # all that trains
    python benchmarks/measure/lean.py FLOWERS --backend jax --work FOLDER --out lean.jsonl --only plain:xception
    python benchmarks/measure/lean.py FLOWERS --work FOLDER --out lean.jsonl --jobs 6 --only int8   # with TensorFlow

Each task runs in a process of its own and appends a line to `--out` when it ends: for three seeds the accuracy on the
same validation images, which of them were right, the peak in training, and the size of the file. `--work` keeps the
models: structured, unstructured and int8 start from the plain ones, so these come first; tasks that do not depend on
each other run side by side (`--jobs`). The latency of one image is measured at the end, when nothing else runs. A task
whose line is in `--out` already is left out, and one that fails does not end the others. int8 uses no card.

On JAX the measured peak holds what the compiler tried kernels with; `predict` adds, on any machine, the peaks that
fitroom estimates for the same steps. pages/lean_page.py writes the comparison, with 95 % intervals, into the docs:

    python benchmarks/measure/lean.py predict lean.jsonl
    python benchmarks/pages/lean_page.py
"""

import argparse
import json
import os
import subprocess
import sys
import time
import zipfile
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

TASKS = (
    *("plain:xception", "three:mobilenetv2", "plain:mobilenetv2", "plain:vgg"),
    *("unstructured:xception", "structured:xception", "unstructured:mobilenetv2", "structured:mobilenetv2"),
    *("lora:mobilenetv2", "head:mobilenetv2", "separable:vgg"),
)
"""What trains, the longest chains of tasks first."""

STARTS = {
    "structured": "plain", "unstructured": "plain", "separable": "plain", "head": "three", "lora": "three"
}  # fmt: skip
"""The kind of model that each change starts from."""

LATENCY, INT8 = "latency", "int8"
SIZE, BATCH, SEEDS = 128, 64, (0, 1, 2)
EPOCHS = {"xception": 30, "mobilenetv2": 40, "vgg": 30}
TUNED = 12
"""Epochs of fine-tuning after a change."""

QUANTIZED = ("xception", "mobilenetv2")

THREE = (0, 2, 4)
"""The classes that the model is trained on before it is adapted to all five."""


def main() -> None:
    """Run the tasks that have no line yet."""
    if sys.argv[1:2] == ["predict"]:
        predict_peaks(Path(sys.argv[2]))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--backend", choices=("jax", "torch", "tensorflow"), default="jax")
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", nargs="+", choices=(*TASKS, LATENCY, INT8), default=(*TASKS, LATENCY))
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time")
    parser.add_argument("--until", type=float, default=float("inf"), help="seconds after which no task is begun")
    parser.add_argument("--epochs-factor", type=float, default=1.0, help="fewer epochs, to try the script")
    parser.add_argument("--image-size", type=int, default=SIZE)
    parser.add_argument("--images", type=int, help="no more than so many of each class, to try the script")
    parser.add_argument("--seeds", type=int, default=len(SEEDS))
    parser.add_argument("--here", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.here:
        set_environment(arguments)
        print("RESULT " + json.dumps(run_task(arguments.here, arguments)))
        return
    arguments.work.mkdir(parents=True, exist_ok=True)
    read_flowers(arguments)  # the tasks find the arrays
    sys.exit(1 if run_tasks(arguments) else 0)


def set_environment(arguments: Any) -> None:
    """Choose the backend, keep compiled programs between seeds and tasks, and share the card."""
    os.environ |= {"KERAS_BACKEND": arguments.backend, "TF_CPP_MIN_LOG_LEVEL": "3"}
    if arguments.here == INT8:
        os.environ |= {"KERAS_BACKEND": "tensorflow", "CUDA_VISIBLE_DEVICES": ""}
    defaults = {
        "JAX_COMPILATION_CACHE_DIR": str(arguments.work.absolute() / "programs"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "XLA_PYTHON_CLIENT_MEM_FRACTION": f"{0.5 / arguments.jobs:.2f}",
        "TF_FORCE_GPU_ALLOW_GROWTH": "true",
    }
    for name, value in defaults.items():
        os.environ.setdefault(name, value)


def run_tasks(arguments: Any) -> list[str]:
    """Run each task in a process, `--jobs` at a time, and write its line when it ends. Returns those without a line.

    A task begins when the one that trains its models has ended; latency when no other is left.
    """
    started = time.monotonic()
    done = {line["task"] for line in read_lines(arguments.out)}
    waiting = [task for task in arguments.only if task not in done]
    failed: list[str] = []
    running: dict[Future[bool], str] = {}
    with ThreadPoolExecutor(arguments.jobs) as pool:
        while waiting or running:
            late = time.monotonic() - started > arguments.until
            under_way = {*waiting, *running.values()}
            for task in list(waiting):
                if late:
                    print(f"{task} left out: it is later than --until {arguments.until:.0f}", file=sys.stderr)
                    failed.append(task)
                    waiting.remove(task)
                elif len(running) < arguments.jobs and not needed(task) & under_way:
                    waiting.remove(task)
                    running[pool.submit(run_process, task, arguments)] = task
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                task = running.pop(future)
                if not future.result():
                    failed.append(task)
    return failed


def needed(task: str) -> set[str]:
    """The tasks that must have ended before this one begins."""
    if task == LATENCY:
        return {*TASKS, INT8}
    if task == INT8:
        return {f"plain:{name}" for name in QUANTIZED}
    kind, _, name = task.partition(":")
    return {f"{STARTS[kind]}:{name}"} if kind in STARTS else set()


def run_process(task: str, arguments: Any) -> bool:
    """Run one task in a process of its own; whether it has written a line."""
    started = time.monotonic()
    command = [sys.executable, __file__, *sys.argv[1:], "--here", task]
    finished = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    results = [line for line in finished.stdout.splitlines() if line.startswith("RESULT ")]
    if not results:
        print(f"{task} failed with exit code {finished.returncode}", file=sys.stderr, flush=True)
        return False
    line = json.loads(results[-1][7:]) | {"wall_seconds": round(time.monotonic() - started, 1)}
    with arguments.out.open("a") as file:
        file.write(json.dumps(line) + "\n")
    shown = {name: line[name] for name in ("task", "accuracy", "peak_bytes", "wall_seconds") if name in line}
    print(shown, flush=True)
    return True


def run_task(task: str, arguments: Any) -> dict[str, Any]:
    """Train, change and measure one kind of model, once for each seed."""
    if task == INT8:
        return measure_int8(arguments)
    if task == LATENCY:
        return measure_latency(arguments)
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
        "versions": versions(),
        "date": today(),
    } | {name: value for name, value in runs[0].items() if name not in ("accuracy", "right")}


def run_seed(kind: str, name: str, seed: int, data: Any, arguments: Any) -> dict[str, Any]:
    """One model: its accuracy, which validation images are right, and its sizes."""
    import keras
    import numpy as np

    from fitroom.lean import PolynomialSchedule, changes, merge, prune, separable

    keras.utils.set_random_seed(seed)
    factor = arguments.epochs_factor
    whole, tuned = max(1, round(EPOCHS[name] * factor)), max(1, round(TUNED * factor))
    place = model_file(arguments, kind, name, seed)
    found: dict[str, Any] = {}
    if kind == "plain":
        model = build(name, arguments.image_size, 5)
        train(model, data, whole, rate=1e-3)
    elif kind == "structured":
        model = prune(load(arguments, STARTS[kind], name, seed), 0.5)
        train(model, data, tuned, rate=5e-4)
    elif kind == "unstructured":
        model = load(arguments, STARTS[kind], name, seed)
        steps = tuned * (len(data["train"][0]) // BATCH)
        schedule = PolynomialSchedule(end=max(2, steps // 2), frequency=max(1, steps // 20))
        pruning = prune(model, 0.8, structured=False, schedule=schedule)
        train(model, data, tuned, rate=5e-4, callbacks=[pruning])
        found["sparsity"] = round(pruning.sparsity(model), 4)
    elif kind == "separable":
        model = separable(load(arguments, STARTS[kind], name, seed))
        found["errors"] = {each.layer: round(each.error or 0.0, 3) for each in changes(model).changed}
        train(model, data, tuned, rate=5e-4)
    elif kind == "three":
        images, labels = data["train"]
        chosen = np.isin(labels, THREE)
        model = build(name, arguments.image_size, len(THREE))
        train(model, {"train": (images[chosen], np.searchsorted(THREE, labels[chosen]))}, whole, rate=1e-3)
    else:
        model = prepare_for_five(kind, load(arguments, STARTS[kind], name, seed))
        train(model, data, tuned, rate=1e-3)
    found["peak_bytes"] = peak_bytes()  # of the first seed that is the peak of its training alone
    trained_parameters = sum(int(np.prod(weight.shape)) for weight in model.trainable_variables)
    if kind == "lora":
        model = merge(model)
    model.save(place)
    keras.models.load_model(place, compile=False).save(place)  # without the optimizer
    images, labels = data["validation"]
    if kind == "three":
        chosen = np.isin(labels, THREE)
        images, labels = images[chosen], np.searchsorted(THREE, labels[chosen])
    right = predict_classes(model, images) == labels
    model.predict_on_batch(
        images[:1].astype("float32")
    )  # compiled here, beside other tasks, for the task that measures it
    return found | {
        "accuracy": round(float(right.mean()), 5),
        "right": "".join("1" if each else "0" for each in np.asarray(right)),
        "parameters": model.count_params(),
        "trained_parameters": trained_parameters,
        "file_bytes": place.stat().st_size,
        "compressed_bytes": compressed_bytes(place),
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
    used = len(images) // BATCH * BATCH or len(images)  # whole batches: a rest would be compiled anew
    steps = epochs * -(-used // BATCH)
    warm_up = min(100, steps // 10)
    schedule = keras.optimizers.schedules.CosineDecay(
        rate / 10, steps, warmup_target=rate, warmup_steps=max(1, warm_up)
    )
    model.compile(keras.optimizers.Adam(schedule), "sparse_categorical_crossentropy")
    random = np.random.default_rng(0)
    for epoch in range(epochs):
        order = random.permutation(len(images))[:used]
        moved = images[order]
        flips = random.random(used) < 0.5
        moved[flips] = moved[flips, :, ::-1]
        shift = random.integers(-12, 13, 2)
        moved = np.roll(moved, shift, axis=(1, 2))
        model.fit(
            moved, labels[order], batch_size=BATCH, shuffle=False, verbose=0, initial_epoch=epoch, epochs=epoch + 1,
            callbacks=list(callbacks),
        )  # fmt: skip


def model_file(arguments: Any, kind: str, name: str, seed: int) -> Path:
    """Where the model of a seed is kept."""
    return Path(arguments.work / f"{kind}-{name}-{seed}.keras")


def load(arguments: Any, kind: str, name: str, seed: int) -> Any:
    """The model of a seed."""
    import keras

    return keras.models.load_model(model_file(arguments, kind, name, seed), compile=False)


def measure_latency(arguments: Any) -> dict[str, Any]:
    """The median time to predict one image on the card, by each kind of model."""
    import keras

    from fitroom.lean.export.running import latency_seconds

    image = read_flowers(arguments)["validation"][0][:1].astype("float32")
    found = {}
    for task in TASKS:
        kind, _, name = task.partition(":")
        if model_file(arguments, kind, name, 0).exists():
            found[task] = latency_seconds(load(arguments, kind, name, 0).predict_on_batch, image)
    backend = keras.config.backend()
    return {"task": LATENCY, "backend": backend, "seconds": found, "versions": versions(), "date": today()}


def measure_int8(arguments: Any) -> dict[str, Any]:
    """The plain models as 8-bit files, against the model in float: the same class, the size, the latency on a CPU.

    Also the latency there of all kinds of models as LiteRT files in float.
    """
    from fitroom.lean.export.running import latency_seconds, open_file

    images, labels = read_flowers(arguments)["validation"]
    given = images.astype("float32")
    folder = link_training_images(arguments)
    seeds = SEEDS[: arguments.seeds]
    small = [("plain", name, seed) for name in QUANTIZED for seed in seeds]
    whole = [(kind, name, 0) for kind, _, name in (task.partition(":") for task in TASKS)]
    small, whole = ([file for file in files if model_file(arguments, *file).exists()] for files in (small, whole))
    expected = {file: predict_classes(load(arguments, *file), given) for file in small}
    with ThreadPoolExecutor(arguments.jobs) as pool:
        exporting = [
            pool.submit(export_one, file, format_name, arguments, folder, given)
            for file in small
            for format_name in ("litert", "onnx")
        ]
        exporting += [pool.submit(export_one, file, "litert", arguments, folder, None) for file in whole]
    lines = [line for line in (each.result() for each in exporting) if line]
    for line in lines:  # nothing else runs now
        line["latency_seconds"] = latency_seconds(open_file(line["format"], Path(line.pop("path"))), given[:1])
        found = line.pop("classes", None)
        if found is not None:
            in_float = expected["plain", line["model"], line["seed"]]
            line["agreement"] = round(float((found == in_float).mean()), 5)
            line["float_accuracy"] = round(float((in_float == labels).mean()), 5)
            line["accuracy"] = round(float((found == labels).mean()), 5)
    return {
        "task": INT8,
        "files": [line for line in lines if "accuracy" in line],
        "float_files": [line for line in lines if "accuracy" not in line],
        "threads": os.cpu_count(),
        "versions": versions(),
        "date": today(),
    }


def export_one(
    file: tuple[str, str, int], format_name: str, arguments: Any, folder: Path, given: Any
) -> dict[str, Any] | None:
    """Export one model in float, or in 8 bits where `given` are images to find the classes of."""
    import numpy as np

    from fitroom.errors import FitroomError
    from fitroom.lean.export.export import export_model
    from fitroom.lean.export.running import open_file

    kind, name, seed = file
    place = model_file(arguments, *file)
    try:
        exported = export_model(place, format_name, int8=given is not None, images=folder, backend="tensorflow")
    except FitroomError as error:
        print(f"{place.name} as {format_name}: {error}", file=sys.stderr)
        return None
    line = {"kind": kind, "model": name, "format": format_name, "seed": seed, "path": exported.path}
    line |= {"size_bytes": exported.size_bytes, "float_bytes": exported.float_bytes}
    if given is not None:
        run = open_file(format_name, Path(exported.path))
        line["classes"] = np.concatenate([run(given[n : n + 1]) for n in range(len(given))]).argmax(axis=1)
        line["quantized_share"] = exported.quantized_share
    return line


def link_training_images(arguments: Any) -> Path:
    """A folder of the training images alone: scales of 8-bit files are found on images that no accuracy is of."""
    folder = Path(arguments.work / "training")
    for directory, files in image_files(arguments):
        for number, file in enumerate(files):
            link = folder / directory.name / file.name
            if number % 5 and not link.exists():
                link.parent.mkdir(parents=True, exist_ok=True)
                link.symlink_to(file.absolute())
    return folder


def image_files(arguments: Any) -> list[tuple[Path, list[Path]]]:
    """The folders of the classes, each with its images in the order of the names."""
    folders = sorted(each for each in arguments.folder.iterdir() if each.is_dir())
    return [(folder, sorted(folder.glob("*.jpg"))[: arguments.images]) for folder in folders]


def read_flowers(arguments: Any) -> dict[str, Any]:
    """Training and validation images as uint8: every fifth of a class is for validation, in the order of the names."""
    import numpy as np

    from fitroom.data import read_picture

    kept = arguments.work / f"flowers-{arguments.image_size}-{arguments.images}.npz"
    if not kept.exists():
        splits: dict[str, Any] = {"train": ([], []), "validation": ([], [])}
        with ThreadPoolExecutor() as pool:
            for label, (_, files) in enumerate(image_files(arguments)):
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


def predict_classes(model: Any, images: Any) -> Any:
    """The most likely class of each image, all in one batch: one shape to compile."""
    return model.predict(images, batch_size=len(images), verbose=0).argmax(axis=1)


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


def today() -> str:
    """The date of a line."""
    return time.strftime("%Y-%m-%d")


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The lines of a result file; none where there is no file."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


if __name__ == "__main__":
    main()
