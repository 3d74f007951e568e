"""What smaller models cost in accuracy: pruned, separable, adapted and 8-bit, on a folder of flowers.

    python benchmarks/measure/lean.py shrink FLOWERS SMALL        # the images at 128 px: 34 MiB
    python benchmarks/measure/lean.py SMALL --work WORK --jobs 6 --until 480 --bring BACK    # on a card, twice:
    python benchmarks/measure/lean.py SMALL --work WORK --jobs 6 --until 480 --bring BACK --models xception:1
    python benchmarks/measure/lean.py join BACK --work HERE       # on any machine with TensorFlow, once for each BACK
    python benchmarks/measure/lean.py SMALL --work HERE --jobs 2 --only int8
    python benchmarks/measure/lean.py predict HERE/lean.jsonl     # then it goes to benchmarks/results
    python benchmarks/pages/lean_page.py

Each task, such as structured:xception:1 for the second seed, is a process of its own that appends a line to
WORK/lean.jsonl when it ends: the accuracy on the same validation images, which of them were right, the peak in
training, the size of the file. WORK keeps the models: structured and unstructured start from the plain ones. Tasks that
do not depend on each other run side by side (`--jobs`). The same command resumes: tasks with a line are left out, and
one that fails ends no other. The latency of one image is measured at the end, when nothing else runs.

The two commands on the card are for one machine, one after the other, and end within nine minutes each. On an H200
with six processes a task of a first seed is expected to take 75 to 100 s, most of it compiling, and one of another seed
35 to 60 s (SECONDS): 6 minutes in all for the 33 tasks, so that the second command is there for what turns out slower.
At `--until` what runs is stopped, and the rest is for the next call. BACK then holds the lines so far and the plain
models, kernels in 16 bits, in parts of 15 MiB; `--models` says which ones. int8 is measured against what was joined
from these, in float.

On JAX the measured peak holds what the compiler tried kernels with; `predict` adds, on any machine, the peaks that
fitroom estimates for the same steps. To try all of it on a CPU: --images 40 --image-size 64 --epochs-factor 0.05
--seeds 1.
"""

import argparse
import io
import json
import os
import subprocess
import sys
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

KINDS = (
    *("plain:xception", "three:mobilenetv2", "plain:mobilenetv2", "plain:vgg"),
    *("unstructured:xception", "structured:xception", "unstructured:mobilenetv2", "structured:mobilenetv2"),
    *("lora:mobilenetv2", "head:mobilenetv2", "separable:vgg"),
)
"""What trains, the longest chains first."""

STARTS = {
    "structured": "plain", "unstructured": "plain", "separable": "plain", "head": "three", "lora": "three"
}  # fmt: skip
"""The kind of model that each change starts from."""

LATENCY, INT8 = "latency", "int8"
SIZE, BATCH, SEEDS = 128, 64, (0, 1, 2)
EPOCHS = {"xception": 30, "mobilenetv2": 40, "vgg": 30}
TUNED = 12
"""Epochs of fine-tuning after a change."""

SECONDS = {"plain": 50, "three": 40, "unstructured": 60, "latency": 90}
"""What a task is expected to take on an H200 beside five others; 35 for other kinds, and 40 more to compile."""

QUANTIZED = ("xception", "mobilenetv2")

THREE = (0, 2, 4)
"""The classes that the model is trained on before it is adapted to all five."""

PART_BYTES = 15 * 2**20


def main() -> None:
    """Run the tasks that have no line yet."""
    if sys.argv[1:2] == ["predict"]:
        predict_peaks(Path(sys.argv[2]))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="*", help="FLOWERS; or shrink FLOWERS SMALL, join BACK, predict FILE")
    parser.add_argument("--backend", choices=("jax", "torch", "tensorflow"), default="jax")
    parser.add_argument("--work", type=Path, help="a folder for models and results")
    parser.add_argument("--only", nargs="+", choices=(*KINDS, LATENCY, INT8), default=(*KINDS, LATENCY))
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time")
    parser.add_argument("--until", type=float, default=float("inf"), help="seconds after which what runs is stopped")
    parser.add_argument("--bring", type=Path, help="a folder for what is to come back from the card's machine")
    parser.add_argument("--models", nargs="*", default=[*(f"mobilenetv2:{seed}" for seed in SEEDS), "xception:0"])
    parser.add_argument("--epochs-factor", type=float, default=1.0, help="fewer epochs, to try the script")
    parser.add_argument("--image-size", type=int, default=SIZE)
    parser.add_argument("--images", type=int, help="no more than so many of each class, to try the script")
    parser.add_argument("--seeds", type=int, default=len(SEEDS))
    parser.add_argument("--here", help=argparse.SUPPRESS)
    arguments = parser.parse_intermixed_args()
    if arguments.what[:1] == ["shrink"]:
        shrink(Path(arguments.what[1]), Path(arguments.what[2]), arguments.image_size)
        return
    if not arguments.work or not arguments.what:
        parser.error("a folder of images and --work are needed")
    arguments.work.mkdir(parents=True, exist_ok=True)
    if arguments.what[0] == "join":
        join_models(Path(arguments.what[1]), arguments)
        return
    arguments.folder = Path(arguments.what[0])
    if arguments.here:
        set_environment(arguments)
        append_line(arguments, run_task(arguments.here, arguments))
        return
    read_flowers(arguments)  # the tasks find the arrays
    left = run_tasks(arguments)
    if arguments.bring:
        bring(arguments)
    sys.exit(1 if left else 0)


def set_environment(arguments: Any) -> None:
    """Choose the backend, keep compiled programs between tasks, and share the card."""
    os.environ |= {"KERAS_BACKEND": arguments.backend, "TF_CPP_MIN_LOG_LEVEL": "3"}
    if arguments.here == INT8:
        os.environ |= {"KERAS_BACKEND": "tensorflow", "CUDA_VISIBLE_DEVICES": ""}
    os.environ.pop("XLA_PYTHON_CLIENT_MEM_FRACTION", None)  # with both names set, JAX goes on on the CPU
    defaults = {
        "JAX_COMPILATION_CACHE_DIR": str(arguments.work.absolute() / "programs"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "XLA_CLIENT_MEM_FRACTION": f"{0.85 / arguments.jobs:.2f}",
        "TF_FORCE_GPU_ALLOW_GROWTH": "true",
    }
    for name, value in defaults.items():
        os.environ.setdefault(name, value)


def run_tasks(arguments: Any) -> list[str]:
    """Run each task in a process, `--jobs` at a time. Returns those that have no line at the end.

    A task begins when the one that trains the model it starts from has ended; latency when no other is left.
    """
    started = time.monotonic()
    waiting = find_waiting(arguments)
    failed: list[str] = []
    running: dict[str, tuple[Any, float]] = {}
    spent: dict[str, float] = {}
    while waiting or running:
        if time.monotonic() - started > arguments.until:
            for process, _ in running.values():
                process.kill()
                process.wait()
            left = [*failed, *running, *waiting]
            print(f"stopped after {arguments.until:.0f} s; the same command resumes; left: {', '.join(left)}")
            return left
        for task in [task for task in waiting if task != LATENCY and needed(task) & {*failed}]:
            print(f"{task} left out: what it starts from failed", file=sys.stderr, flush=True)
            waiting.remove(task)
            failed.append(task)
        for task in list(waiting):
            if len(running) < arguments.jobs and not needed(task) & {*waiting, *running}:
                waiting.remove(task)
                command = [sys.executable, __file__, *sys.argv[1:], "--here", task]
                running[task] = (subprocess.Popen(command), time.monotonic())
        time.sleep(0.2)
        for task, (process, begun) in list(running.items()):
            if process.poll() is None:
                continue
            del running[task]
            if process.returncode:
                failed.append(task)
                print(f"{task} failed with exit code {process.returncode}", file=sys.stderr, flush=True)
            else:
                spent[task] = time.monotonic() - begun
                seconds = seconds_left([*waiting, *running], spent, arguments.jobs)
                print(f"{task} took {spent[task]:.0f} s; about {seconds:.0f} s left", flush=True)
    return failed


def find_waiting(arguments: Any) -> list[str]:
    """The tasks that have no line, and before them those whose models they start from but which are not there."""
    seeds = SEEDS[: arguments.seeds]
    chosen = [f"{kind}:{seed}" for seed in seeds for kind in KINDS if kind in arguments.only]
    chosen += [task for task in (LATENCY, INT8) if task in arguments.only]
    done = {line["task"] for line in read_lines(arguments.work / "lean.jsonl")}
    waiting = [task for task in chosen if task not in done]
    missing = {
        start
        for task in waiting
        if task not in (LATENCY, INT8)
        for start in needed(task)
        if not file_of(start, arguments).exists()
    }
    return [*sorted(missing - {*waiting}), *waiting]


def needed(task: str) -> set[str]:
    """The tasks that must have ended before this one begins."""
    if task in (LATENCY, INT8):
        return {f"{kind}:{seed}" for kind in KINDS for seed in SEEDS} | ({INT8} if task == LATENCY else set())
    kind, name, seed = task.split(":")
    return {f"{STARTS[kind]}:{name}:{seed}"} if kind in STARTS else set()


def seconds_left(tasks: list[str], spent: dict[str, float], jobs: int) -> float:
    """What these tasks will take, by what was expected of those that have ended and what they took."""

    def expected(task: str) -> float:
        return SECONDS.get(task.split(":")[0], 35) + (40 if task.endswith(":0") else 0)

    slower = sum(spent.values()) / sum(map(expected, spent))
    return slower * sum(map(expected, tasks)) / jobs


def append_line(arguments: Any, line: dict[str, Any]) -> None:
    """Add what a task has measured to the results: one write, so that lines of others stay whole."""
    with (arguments.work / "lean.jsonl").open("a") as file:
        file.write(json.dumps(line) + "\n")


def run_task(task: str, arguments: Any) -> dict[str, Any]:
    """Train, change and measure one model, or measure those that are there."""
    started = time.monotonic()
    if task in (LATENCY, INT8):
        line = measure_int8(arguments) if task == INT8 else measure_latency(arguments)
    else:
        check_card(arguments)
        kind, name, seed = task.split(":")
        line = run_seed(kind, name, int(seed), read_flowers(arguments), arguments)
        line |= {"image_size": arguments.image_size, "batch_size": BATCH, "backend": arguments.backend}
    seconds = round(time.monotonic() - started, 1)
    return {"task": task} | line | {"seconds_in_all": seconds, "versions": versions(), "date": today()}


def check_card(arguments: Any) -> None:
    """End where there is a card and JAX does not use it: it says so in one line of its log, and goes on on the CPU."""
    from fitroom.cards.nvml import live_gpus

    if arguments.backend == "jax" and live_gpus():
        import jax

        if jax.default_backend() == "cpu":
            sys.exit("there is a card, and JAX trains on the CPU: is its CUDA plugin in order?")


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
    found["peak_bytes"] = peak_bytes()
    trained_parameters = sum(int(np.prod(weight.shape)) for weight in model.trainable_variables)
    if kind == "lora":
        model = merge(model)
    save_without_optimizer(model, place)
    images, labels = data["validation"]
    if kind == "three":
        chosen = np.isin(labels, THREE)
        images, labels = images[chosen], np.searchsorted(THREE, labels[chosen])
    right = predict_classes(model, images) == labels
    if seed == SEEDS[0]:  # compiled here, beside other tasks, for the task that measures the latency
        model.predict_on_batch(images[:1].astype("float32"))
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


def save_without_optimizer(model: Any, place: Path) -> None:
    """Save a model; a file at its place is whole."""
    import keras

    partial = place.with_suffix(".part.keras")
    model.save(partial)
    keras.models.load_model(partial, compile=False).save(partial)
    partial.replace(place)


def make_changed(kind: str, name: str, size: int) -> Any:
    """A model of the form that a task has, with random weights."""
    from fitroom.lean import prune, separable

    model = build(name, size, len(THREE) if kind in ("three", "head", "lora") else 5)
    if kind == "structured":
        return prune(model, 0.5)
    if kind == "separable":
        return separable(model)
    return prepare_for_five(kind, model) if kind in ("head", "lora") else model


def predict_peaks(out: Path) -> None:
    """Add the estimated peak of each step that was measured, by its own backend, to the line of its lowest seed."""
    lines = read_lines(out)
    backend = next((line["backend"] for line in lines if "right" in line), "jax")
    os.environ |= {"KERAS_BACKEND": backend, "JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "3"}
    import fitroom

    first = {
        line["task"].rpartition(":")[0]: line for line in sorted(lines, key=lambda each: each["task"], reverse=True)
    }
    for line in lines:
        if (
            "right" not in line
            or line is not first[line["task"].rpartition(":")[0]]
            or line.get("predicted_peak_bytes")
        ):
            continue
        kind, name, _ = line["task"].split(":")
        model = make_changed(kind, name, line["image_size"])
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
    random = np.random.default_rng(np.random.randint(2**31))  # by the seed of the task
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


def file_of(task: str, arguments: Any) -> Path:
    """Where the model of a task is kept."""
    kind, name, seed = task.split(":")
    return model_file(arguments, kind, name, int(seed))


def load(arguments: Any, kind: str, name: str, seed: int) -> Any:
    """The model of a seed."""
    import keras

    return keras.models.load_model(model_file(arguments, kind, name, seed), compile=False)


def measure_latency(arguments: Any) -> dict[str, Any]:
    """The median time to predict one image on the card, by each kind of model."""
    from fitroom.lean.export.running import latency_seconds

    image = read_flowers(arguments)["validation"][0][:1].astype("float32")
    found = {}
    for task in KINDS:
        kind, name = task.split(":")
        if model_file(arguments, kind, name, SEEDS[0]).exists():
            found[task] = latency_seconds(load(arguments, kind, name, SEEDS[0]).predict_on_batch, image)
    return {"backend": arguments.backend, "seconds": found}


def measure_int8(arguments: Any) -> dict[str, Any]:
    """The plain models as 8-bit files, against the model in float: the same class, the size, the latency on a CPU.

    Also the latency there of all kinds of models as LiteRT files in float.
    """
    from fitroom.lean.export.running import latency_seconds, open_file

    images, labels = read_flowers(arguments)["validation"]
    given = images.astype("float32")
    folder = link_training_images(arguments)
    small = [("plain", name, seed) for name in QUANTIZED for seed in SEEDS]
    small = [file for file in small if model_file(arguments, *file).exists()]
    expected = {file: predict_classes(load(arguments, *file), given) for file in small}
    whole = []
    for kind, name in (task.split(":") for task in KINDS):
        if kind not in ("three", "lora", "head"):  # of the form of the plain one
            if not model_file(arguments, kind, name, SEEDS[0]).exists():  # for its latency any weights do
                make_changed(kind, name, arguments.image_size).save(model_file(arguments, kind, name, SEEDS[0]))
            whole.append((kind, name, SEEDS[0]))
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
        "files": [line for line in lines if "accuracy" in line],
        "float_files": [line for line in lines if "accuracy" not in line],
        "threads": os.cpu_count(),
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

    kept = arguments.work / f"flowers-{arguments.image_size}-{arguments.images or 'all'}.npz"
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
        partial = kept.with_suffix(".part.npz")
        np.savez(partial, **arrays)
        partial.replace(kept)
    arrays = dict(np.load(kept))
    return {split: (arrays[f"{split}_images"], arrays[f"{split}_labels"]) for split in ("train", "validation")}


def shrink(folder: Path, to: Path, size: int) -> None:
    """Write the images at the size that is trained on, as JPEGs: little enough to travel."""
    import numpy as np
    from PIL import Image

    from fitroom.data import read_picture

    for file in sorted(folder.glob("*/*.jpg")):
        place = to / file.parent.name / file.name
        place.parent.mkdir(parents=True, exist_ok=True)
        image = Image.fromarray(np.asarray(read_picture(file, size, "crop")).astype("uint8"))
        image.save(place, quality=90, subsampling=0)


def bring(arguments: Any) -> None:
    """Write the lines so far and the plain models that `--models` names into a folder, in parts of little size."""
    os.environ |= {"KERAS_BACKEND": arguments.backend, "JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": ""}
    import numpy as np

    arguments.bring.mkdir(parents=True, exist_ok=True)
    lines = arguments.work / "lean.jsonl"
    if lines.exists():
        (arguments.bring / lines.name).write_bytes(lines.read_bytes())
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, _, seed in (each.partition(":") for each in arguments.models):
            if not model_file(arguments, "plain", name, int(seed)).exists():
                continue
            weights = load(arguments, "plain", name, int(seed)).get_weights()
            kept = [each.astype("float16") if each.ndim > 1 else each for each in weights]
            with archive.open(f"plain-{name}-{seed}.npz", "w") as file:
                np.savez(file, *kept)
    data = packed.getvalue()
    for number, start in enumerate(range(0, len(data), PART_BYTES)):
        (arguments.bring / f"models-{number:02}").write_bytes(data[start : start + PART_BYTES])


def join_models(folder: Path, arguments: Any) -> None:
    """Put the models together that `bring` has written, and add its lines to those that are here."""
    os.environ |= {"KERAS_BACKEND": "tensorflow", "TF_CPP_MIN_LOG_LEVEL": "3"}
    import numpy as np

    known = {line["task"] for line in read_lines(arguments.work / "lean.jsonl")}
    for line in read_lines(folder / "lean.jsonl"):
        if line["task"] not in known:
            append_line(arguments, line)
    data = b"".join(part.read_bytes() for part in sorted(folder.glob("models-*")))
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        for entry in archive.namelist():
            kind, name, seed = Path(entry).stem.split("-")
            arrays = np.load(io.BytesIO(archive.read(entry)))
            model = build(name, arguments.image_size, 5)
            model.set_weights([arrays[f"arr_{number}"].astype("float32") for number in range(len(arrays.files))])
            model.save(model_file(arguments, kind, name, int(seed)))
            print(f"{kind} {name} {seed}")


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
