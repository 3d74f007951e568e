"""Estimate every model of `keras.applications` at the picture size it was made for.

    python benchmarks/predict/applications.py jax            # or torch, tensorflow-jit, tensorflow-graph

Writes results/applications_NAME.json and resumes where it was. One line of the result a model: its peak at batch 8 in
float32 on an H200, what part of it has a layer, how long it took, or why it was refused.
"""

import argparse
import json
import os
import sys
from pathlib import Path

NAMES = ("jax", "torch", "tensorflow-jit", "tensorflow-graph")
RESULTS = Path(__file__).parents[1] / "results"
BATCH_SIZE = 8
GPU = "H200"


def main() -> None:
    """Estimate the models that are not in the result yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=NAMES)
    name = parser.parse_args().name
    backend, _, mode = name.partition("-")
    os.environ |= {"KERAS_BACKEND": backend, "JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "3"}
    from fitroom.keras_model.loading.application import application_names

    file = RESULTS / f"applications_{name}.json"
    models = json.loads(file.read_text()) if file.exists() else {}
    for model in application_names():
        if model not in models:
            models[model] = estimated(model, jit={"jit": True, "graph": False}.get(mode))
            print(model, models[model], flush=True)
            file.write_text(json.dumps(models, indent=1) + "\n")
    refused = [model for model, found in models.items() if "refused" in found]
    print(f"{len(models)} models, refused: {', '.join(refused) or 'none'}")
    sys.exit(1 if len(refused) > 2 else 0)


def estimated(name: str, jit: bool | None) -> dict[str, object]:
    """One model's line of the result."""
    import keras

    import fitroom
    from fitroom.keras_model.loading.source import ModelSource, load_model
    from fitroom.memory.timeline import NO_LAYER

    keras.utils.clear_session()
    try:
        model = load_model(ModelSource(text=name))
        found = fitroom.estimate(model, BATCH_SIZE, gpu=GPU, recipe=fitroom.Recipe(jit=jit))
    except fitroom.FitroomError as error:
        return {"refused": error.message}
    return {
        "image_size": model.input_shape[1],
        "peak_bytes": found.peak_bytes,
        "share_with_layer": round(1 - found.timeline.by_layer().get(NO_LAYER, 0) / found.peak_bytes, 4),
        "seconds": round(found.seconds, 1),
        "versions": dict(found.versions),
    }


if __name__ == "__main__":
    main()
