"""Estimate every model of `keras.applications` on JAX, at the picture size it was made for.

    python benchmarks/applications.py            # writes results/jax_applications.json; resumes where it was

One line of the result a model: its peak at batch 8 in float32 on an H200, what part of it has a layer, how long it
took, or why it was refused.
"""

import json
import os
import sys
from importlib.metadata import version
from pathlib import Path

os.environ |= {"KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "3"}

import keras

import fitroom
from fitroom.backends.jax.compiled.compiler import compiler_version
from fitroom.estimating.timeline import NO_LAYER
from fitroom.models.application import application_names
from fitroom.models.source import ModelSource, load_model

RESULT = Path(__file__).parent / "results" / "jax_applications.json"
BATCH_SIZE = 8


def main() -> None:
    """Estimate the models that are not in the result yet."""
    models = json.loads(RESULT.read_text())["models"] if RESULT.exists() else {}
    for name in application_names():
        if name not in models:
            models[name] = estimated(name)
            print(name, models[name], flush=True)
            versions = {"keras": version("keras"), "jax": version("jax"), "compiler": compiler_version()}
            RESULT.write_text(json.dumps({"versions": versions, "models": models}, indent=1) + "\n")
    refused = [name for name, found in models.items() if "refused" in found]
    print(f"{len(models)} models, refused: {', '.join(refused) or 'none'}")
    sys.exit(1 if len(refused) > 2 else 0)


def estimated(name: str) -> dict[str, object]:
    """One model's line of the result."""
    keras.utils.clear_session()
    try:
        model = load_model(ModelSource(text=name))
        found = fitroom.estimate(model, BATCH_SIZE, gpu="H200")
    except fitroom.FitroomError as error:
        return {"refused": error.message}
    layers = {row.layer: row.bytes for row in found.by_layer}
    return {
        "image_size": model.input_shape[1],
        "peak_bytes": found.peak_bytes,
        "share_with_layer": round(1 - layers.get(NO_LAYER, 0) / found.peak_bytes, 4),
        "seconds": round(found.seconds, 1),
    }


if __name__ == "__main__":
    main()
