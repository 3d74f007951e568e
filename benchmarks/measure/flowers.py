"""What the defaults of `fitroom train` learn, beside plain Keras on the same pictures for as many epochs.

    python benchmarks/measure/flowers.py FOLDER --backend jax --epochs 30 --budget 8GiB --run-dir runs/flowers

Both begin from random weights and train Xception at 299 pixels. Plain Keras does as tutorials do: Adam at its own rate,
batches of 32, pictures scaled to 0..1, no more memory than there is, float32. They run side by side, so that only what
they learn can be compared, and the seconds are of no use. One line of results/flowers.jsonl.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parents[1] / "results" / "flowers.jsonl"


def main() -> None:
    """Train both and append what came of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--backend", choices=("jax", "torch", "tensorflow"), required=True)
    parser.add_argument("--model", default="xception")
    parser.add_argument("--image-size", type=int, default=299)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--batch-size", type=int, default=64, help="of fitroom train")
    parser.add_argument("--budget", default="8GiB")
    parser.add_argument("--run-dir", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--plain", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    os.environ["KERAS_BACKEND"] = arguments.backend
    if arguments.plain:
        print("RESULT " + json.dumps(plain_keras(arguments)))
        return
    # Both are on the card at once: neither may take most of it in advance, as JAX does.
    environment = os.environ | {"XLA_CLIENT_MEM_FRACTION": "0.2", "TF_FORCE_GPU_ALLOW_GROWTH": "true"}
    beside = subprocess.Popen(
        [sys.executable, __file__, *sys.argv[1:], "--plain"], env=environment, stdout=subprocess.PIPE, text=True
    )
    ours = fitroom_train(arguments)
    said, _ = beside.communicate()
    plain = [json.loads(line[7:]) for line in said.splitlines() if line.startswith("RESULT ")]
    result = {
        "model": arguments.model,
        "image_size": arguments.image_size,
        "epochs": arguments.epochs,
        "backend": arguments.backend,
        "fitroom": ours,
        "keras": plain[0] if plain else None,
        "date": time.strftime("%Y-%m-%d"),
    }
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    with arguments.out.open("a") as lines:
        lines.write(json.dumps(result) + "\n")
    print(json.dumps(result))


def fitroom_train(arguments: argparse.Namespace) -> dict[str, Any]:
    """The command as a user types it, with the defaults for all that is not the task."""
    command = [sys.executable, "-m", "fitroom", "train", arguments.folder, "--model", arguments.model]
    options = {
        "weights": "none",
        "image-size": arguments.image_size,
        "epochs": arguments.epochs,
        "batch-size": arguments.batch_size,
        "backend": arguments.backend,
        "budget": arguments.budget,
        "run-dir": arguments.run_dir,
    }
    typed = [text for name, value in options.items() for text in (f"--{name}", str(value))]
    finished = subprocess.run([*map(str, command), *typed])
    if finished.returncode:
        raise SystemExit(f"fitroom train ended with exit code {finished.returncode}")
    job = json.loads((arguments.run_dir / "job.json").read_text())
    results = json.loads((arguments.run_dir / "results.json").read_text())
    readings = [json.loads(line) for line in (arguments.run_dir / "readings.jsonl").read_text().splitlines()]
    peaks = [reading["peak_bytes"] for reading in readings if reading.get("peak_bytes")]
    return {
        "accuracy": results["metrics"]["accuracy"],
        "recipe": job["recipe"],
        "budget": job["budget"],
        "peak_bytes": max(peaks, default=None),
        "device": job["device"],
        "versions": job["versions"],
    }


def plain_keras(arguments: argparse.Namespace) -> dict[str, Any]:
    """`model.fit` on the same pictures, read whole into memory."""
    import keras
    import numpy as np

    import fitroom.data

    size = arguments.image_size
    pictures = fitroom.data.images(arguments.folder, image_size=size, batch_size=32, seed=0, validation=0.2)

    def arrays(split: Any) -> tuple[Any, Any]:
        x = np.empty((len(split.files), size, size, 3), "uint8")
        for number, (file, _) in enumerate(split.files):
            x[number] = fitroom.data.read_picture(file, size, "crop")
        return x, np.array([label for _, label in split.files])

    keras.utils.set_random_seed(0)
    application = getattr(keras.applications, {"xception": "Xception"}.get(arguments.model, arguments.model))
    network = application(weights=None, input_shape=(size, size, 3), classes=len(pictures.classes))
    inputs = keras.Input((size, size, 3), dtype="uint8")
    model = keras.Model(inputs, network(keras.layers.Rescaling(1 / 255)(inputs)))
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    history = model.fit(
        *arrays(pictures.train),
        batch_size=32,
        epochs=arguments.epochs,
        validation_data=arrays(pictures.validation),
        verbose=2,
    )
    accuracies = [float(value) for value in history.history["val_accuracy"]]
    return {"accuracy": accuracies[-1], "best_accuracy": max(accuracies), "versions": {"keras": keras.__version__}}


if __name__ == "__main__":
    main()
