"""Prune every model of `keras.applications` by half, run what is left and train it one step.

    python benchmarks/compatibility/pruned_applications.py            # all that are not in the result yet
    python benchmarks/compatibility/pruned_applications.py MobileNetV2

Each model in a process of its own, on small images and with random weights, on PyTorch; those that Keras does not offer
there on TensorFlow. Writes results/pruned_applications.json: parameters before and after, the loss of the step, and how
far the outputs are from those of the whole model with the removed channels at zero (`difference`, of probabilities,
which `spread` says are not all alike; null where a layer normalises over channels, so that the two differ by right).
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from harness.paths import RESULTS, TEST_HELPERS

sys.path.insert(0, str(TEST_HELPERS))

FILE = RESULTS / "pruned_applications.json"
SPARSITY = 0.5
SMALLEST = {"InceptionV3": 75, "InceptionResNetV2": 75, "Xception": 71}


def main() -> None:
    """Prune the models that are not in the result yet, or the named ones again."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*")
    parser.add_argument("--here", action="store_true", help="in this process, as the script itself calls it")
    arguments = parser.parse_args()
    if arguments.here:
        print(json.dumps(prune_one(arguments.models[0])))
        return
    from fitroom.keras_model.loading.application import application_names

    found = json.loads(FILE.read_text()) if FILE.exists() else {}
    for name in arguments.models or [name for name in application_names() if name not in found]:
        found[name] = run_child(name)
        print(name, found[name], flush=True)
        FILE.write_text(json.dumps({name: found[name] for name in sorted(found)}, indent=1) + "\n")
    failed = [name for name, line in found.items() if "failed" in line]
    print(f"{len(found) - len(failed)} of {len(found)} models pruned by half; failed: {', '.join(failed) or 'none'}")
    sys.exit(1 if failed else 0)


def run_child(name: str) -> dict[str, object]:
    """The line of one model, from a process of its own."""
    backend = "tensorflow" if name.startswith("NASNet") else "torch"  # Keras has no NASNet on PyTorch
    environment = os.environ | {"KERAS_BACKEND": backend, "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(
        [sys.executable, __file__, "--here", name], env=environment, capture_output=True, text=True, errors="replace"
    )
    if done.returncode:
        return {"backend": backend, "failed": (done.stderr.strip().splitlines() or ["no message"])[-1]}
    line: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return {"backend": backend} | line


def prune_one(name: str) -> dict[str, object]:
    """Build, prune, compare, and train one step."""
    import keras
    import numpy as np

    from fitroom.keras_model.layers import layer_paths
    from zeroed_channels import draw_weights, prune_and_zero

    keras.utils.set_random_seed(0)
    size = SMALLEST.get(name, 64)
    model = getattr(keras.applications, name)(weights=None, input_shape=(size, size, 3), classes=5)
    draw_weights(model)
    before = model.count_params()
    images = np.random.default_rng(0).uniform(0, 255, (2, size, size, 3)).astype("float32")
    started = time.monotonic()
    pruned = prune_and_zero(model, SPARSITY)
    seconds = time.monotonic() - started
    answers = pruned.predict(images, verbose=0)
    by_layer = any("LayerNormalization" in type(layer).__name__ for _, layer in layer_paths(model))
    difference = None if by_layer else float(np.abs(answers - model.predict(images, verbose=0)).max())
    del model
    pruned.compile("sgd", "sparse_categorical_crossentropy")
    loss = float(pruned.train_on_batch(images, np.array([0, 1])))
    assert np.isfinite(loss)
    return {
        "parameters": before,
        "pruned_parameters": pruned.count_params(),
        "difference": difference,
        "spread": float(answers.std()),
        "loss": round(loss, 3),
        "seconds": round(seconds, 1),
    }


if __name__ == "__main__":
    main()
