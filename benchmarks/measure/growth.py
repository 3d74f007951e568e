"""How the time of one estimate grows with layers, parameters and batch size, and the host memory that it takes.

    python benchmarks/measure/growth.py layers --backend torch --out benchmarks/results/growth.jsonl
    python benchmarks/measure/growth.py parameters batch --backend jax --out FILE
    python benchmarks/measure/growth.py applications --backend jax --models NASNetLarge --out FILE
    python benchmarks/measure/growth.py --plot benchmarks/results/growth.jsonl      # writes the figure in docs/

Each point is a process of its own without a cache. Its time is in CPU seconds of the process and its children, from
the built model to the estimate, so that a busy machine disturbs it little; imports and building are beside it.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
from harness.paths import ROOT

POINTS = {"layers": (50, 100, 200, 500, 1000, 2000), "parameters": (16, 32, 64, 128, 256), "batch": (1, 8, 64, 512)}
"""By what grows: layers of a chain of residual blocks, their channels, samples."""

LARGEST = ("NASNetLarge", "EfficientNetB7", "EfficientNetV2L", "ConvNeXtXLarge", "VGG19", "ResNet152V2")
FIGURE = ROOT / "docs" / "images" / "growth.svg"
_LAYERS, _CHANNELS, _BATCH, _PIXELS = 100, 16, 8, 32
_LAYERS_A_BLOCK = 4


def main() -> None:
    """Measure what was asked for, one line of JSON a point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "axes", nargs="*", choices=[[], *POINTS, "applications"], metavar="AXIS", help=", ".join(POINTS)
    )
    parser.add_argument("--backend", choices=("jax", "tensorflow", "torch"))
    parser.add_argument("--points", type=int, nargs="+", help="in place of the usual ones")
    parser.add_argument("--models", nargs="+", default=LARGEST, help="for applications")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--plot", type=Path, metavar="FILE")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        print("RESULT " + json.dumps(measure(json.loads(arguments.child))))
        return
    for axis in arguments.axes:
        points = arguments.models if axis == "applications" else arguments.points or POINTS[axis]
        for point in points:
            run_child({"axis": axis, "point": point, "backend": arguments.backend}, arguments.out)
    if arguments.plot:
        plot(arguments.plot)


def run_child(asked: dict[str, Any], out: Path | None) -> None:
    """Measure one point in a process of its own."""
    settings = {"KERAS_BACKEND": asked["backend"], "JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "3"}
    environment = os.environ | settings | {"FITROOM_NO_CACHE": "1"}
    command = [sys.executable, __file__, "--child", json.dumps(asked)]
    finished = subprocess.run(command, env=environment, capture_output=True, text=True)
    lines = [line for line in finished.stdout.splitlines() if line.startswith("RESULT ")]
    error = {"error": (finished.stderr.strip().splitlines() or ["nothing said"])[-1][:300]}
    found = asked | (json.loads(lines[-1].removeprefix("RESULT ")) if lines else error)
    found["date"] = time.strftime("%Y-%m-%d")
    print(json.dumps(found), flush=True)
    if out:
        with out.open("a") as file:
            file.write(json.dumps(found) + "\n")


def measure(asked: dict[str, Any]) -> dict[str, Any]:
    """Build the model of a point and estimate it."""
    import keras

    import fitroom

    batch_size = _BATCH
    if asked["axis"] == "applications":
        from fitroom.keras_model.loading.source import ModelSource, load_model

        model = load_model(ModelSource(text=asked["point"]))
    else:
        sizes = {"layers": _LAYERS, "parameters": _CHANNELS, "batch": _BATCH} | {asked["axis"]: asked["point"]}
        model, batch_size = make_chain(keras, sizes["layers"], sizes["parameters"]), sizes["batch"]
    before = cpu_seconds()
    recipe = fitroom.Recipe(jit=False if asked["backend"] == "tensorflow" else None)
    found = fitroom.estimate(model, batch_size, recipe=recipe, gpu="H200")
    processes = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    host = [resource.getrusage(which).ru_maxrss * 1024 for which in processes]
    return {
        "layers": len(model.layers),
        "parameters": model.count_params(),
        "batch_size": batch_size,
        "cpu_seconds": round(cpu_seconds() - before, 2),
        "import_and_build_cpu_seconds": round(before, 2),
        "host_bytes": sum(host),  # at most: their peaks need not come at the same time
        "peak_bytes": found.peak_bytes,
        "versions": dict(found.versions),
    }


def make_chain(keras: Any, num_layers: int, channels: int) -> Any:
    """A chain of residual blocks of four layers each."""
    layers = keras.layers
    with keras.StatelessScope(initialize_variables=False):
        x = images = keras.Input((_PIXELS, _PIXELS, channels))
        for _ in range(num_layers // _LAYERS_A_BLOCK):
            y = layers.Conv2D(channels, 3, padding="same")(x)
            y = layers.BatchNormalization()(y)
            x = layers.Add()([x, layers.ReLU()(y)])
        outputs = layers.Dense(10, activation="softmax")(layers.GlobalAveragePooling2D()(x))
        return keras.Model(images, outputs)


def cpu_seconds() -> float:
    """Of this process and its children that have ended."""
    used = [resource.getrusage(which) for which in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def plot(file: Path) -> None:
    """Draw the curves; both axes are logarithmic, and a thin line shows what linear is."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "growth"
    from matplotlib import pyplot

    lines = [json.loads(line) for line in file.read_text().splitlines()]
    columns = {"layers": "layers", "parameters": "parameters", "batch": "batch_size"}
    measured = {axis: column for axis, column in columns.items() if any(each["axis"] == axis for each in lines)}
    figure, grid = pyplot.subplots(1, len(measured), figsize=(4.5 * len(measured), 3.6), sharey=True, squeeze=False)
    charts = grid[0]
    for chart, (axis, column) in zip(charts, measured.items(), strict=True):
        for backend in ("jax", "tensorflow", "torch"):
            latest = {each["point"]: each for each in lines if (each["axis"], each["backend"]) == (axis, backend)}
            found = sorted((each[column], each["cpu_seconds"]) for each in latest.values() if column in each)
            if found:
                chart.plot(*zip(*found, strict=True), marker="o", markersize=3, label=backend)
        if axis == "layers":
            ends = sorted(each[column] for each in lines if each["axis"] == axis and column in each)
            chart.plot([ends[0], ends[-1]], [1, ends[-1] / ends[0]], color="grey", linewidth=0.7, label="linear")
        chart.set(xscale="log", yscale="log", xlabel=column.replace("_", " "))
    charts[0].set_ylabel("CPU seconds of one estimate")
    charts[0].legend()
    figure.tight_layout()
    figure.savefig(FIGURE, metadata={"Date": None})


if __name__ == "__main__":
    main()
