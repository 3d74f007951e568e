"""Write the tables of docs/remat.md from the results, and draw its pictures.

python benchmarks/pages/remat_page.py [--check]
"""

import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
from pages.page_figures import write_figures

HERE = Path(__file__).parent
PICTURE = HERE.parents[1] / "docs" / "images" / "remat.svg"
PICTURE_OF_MODELS = PICTURE.with_name("remat_models.svg")
NAMES = {"jax": "JAX", "torch": "PyTorch", "tensorflow": "TensorFlow"}
WAYS = {
    "none": "nothing",
    "checkpoint": "`torch.utils.checkpoint` around each block",
    "compile": "`torch.compile`",
    "budget": "`torch.compile` with an activation budget",
}
GIB = 2**30

Line = dict[str, Any]
Key = tuple[str, str, str, str]


def main() -> None:
    """All tables; the pictures where the page is written."""
    predicted, measured = last_of("predict"), last_of("measure")
    if "--check" not in sys.argv:
        draw(measured)
        draw_curves(predicted, measured)
    tables = [*predictions(predicted), *curves(predicted, measured), *measurements(measured, predicted)]
    write_figures("remat.md", "pages/remat_page.py", "\n".join(tables))


def last_of(what: str) -> dict[Key, Line]:
    """The last line for each backend, model, precision and choice, in order."""
    lines = read("remat.jsonl")
    found = {
        (backend(line), line["model"], line["precision"], line["remat"]): line
        for line in lines
        if line["what"] == what and line["batch_size"] == 64 and not line.get("micro_batch")
    }
    return dict(
        sorted(found.items(), key=lambda item: (item[0][1] != "Xception", *item[0][:3], -item[1]["peak_bytes"]))
    )


def read(name: str) -> list[Line]:
    """The lines of a file of results, or none."""
    file = HERE.parent / "results" / name
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def predictions(predicted: dict[Key, Line]) -> list[str]:
    """What `estimate` says."""
    return [
        "| backend | precision | remat | peak, GiB | of none | activations, of none |",
        "|---|---|---|---:|---:|---:|",
        *(
            f"| {name} | {precision} | {remat} | {line['peak_bytes'] / GIB:.2f} | "
            f"{line['peak_bytes_ratio']:.2f} | {line['activation_bytes_ratio']:.2f} |"
            for (name, model, precision, remat), line in predicted.items()
            if model == "Xception"
        ),
        "",
    ]


def curves(predicted: dict[Key, Line], measured: dict[Key, Line]) -> list[str]:
    """What tighter and tighter budgets do for other models."""
    return [
        "Other models on JAX in float32, predicted; where a step was measured on the H200, that beside it:",
        "",
        "| model | remat | peak, GiB | of none | time of none | peak measured | time measured |",
        "|---|---|---:|---:|---:|---:|---:|",
        *(
            f"| {key[1]} | {key[3]} | {line['peak_bytes'] / GIB:.2f} | {of_none(predicted, key, 'peak_bytes')} | "
            f"{of_none(predicted, key, 'predicted_seconds')} | {of_prediction(measured.get(key))} | "
            f"{of_none(measured, key, 'seconds') if key in measured else ''} |"
            for key, line in predicted.items()
            if key[1] != "Xception"
        ),
        "",
        "![Memory against time for five models on JAX, predicted](images/remat_models.svg)",
        "",
    ]


def measurements(measured: dict[Key, Line], predicted: dict[Key, Line]) -> list[str]:
    """What the card says, and PyTorch's own means beside it."""
    twin = {(line["precision"], line["way"]): line for line in read("torch_twin.jsonl")}
    return [
        "Measured on an H200, batch 64, the steps of `fitroom.fit`; a size is the budget that was asked for:",
        "",
        "| model | backend | precision | remat | peak, GiB | of none | predicted, GiB | seconds a step | of none |",
        "|---|---|---|---|---:|---:|---:|---:|---:|",
        *(
            f"| {model} | {name} | {precision} | {remat} | {line['peak_bytes'] / GIB:.2f} | "
            f"{of_none(measured, key, 'peak_bytes')} | {of_prediction(predicted.get(key))} | {seconds_of(line)} | "
            f"{of_none(measured, key, 'seconds')} |"
            for key, line in measured.items()
            for name, model, precision, remat in [key]
        ),
        "",
        "![Memory against time for Xception on JAX](images/remat.svg)",
        "",
        *(
            [
                "PyTorch's own means, in the same visit to the card, on the twin of Xception in timm "
                "([benchmarks/measure/torch_twin.py](../benchmarks/measure/torch_twin.py)):",
                "",
                "| recomputed by | precision | peak, GiB | of none | seconds a step | of none |",
                "|---|---|---:|---:|---:|---:|",
                *(
                    f"| {WAYS[way]} | {precision} | {line['peak_bytes'] / GIB:.2f} | "
                    f"{ratio(line, twin[precision, 'none'], 'peak_bytes')} | {seconds_of(line)} | "
                    f"{ratio(line, twin[precision, 'none'], 'seconds')} |"
                    for (precision, way), line in twin.items()
                ),
                "",
            ]
            if twin
            else []
        ),
    ]


def of_none(measured: dict[Key, Line], key: Key, name: str) -> str:
    """How many times that of nothing recomputed, where that was measured."""
    return ratio(measured[key], measured.get((*key[:3], "none")), name)


def ratio(line: Line, plain: Line | None, name: str) -> str:
    """One figure against another, where both were measured."""
    return f"{line[name] / plain[name]:.2f}" if plain and line[name] and plain[name] else ""


def seconds_of(line: Line) -> str:
    """A step, where nobody else used the card."""
    return f"{line['seconds']:.4f}" if line["seconds"] else ""


def of_prediction(line: Line | None) -> str:
    """Its peak."""
    return f"{line['peak_bytes'] / GIB:.2f}" if line else ""


def draw(measured: dict[Key, Line]) -> None:
    """The curve of one model: each budget a point."""
    from fitroom.report.shared.palette import INK

    points = [
        (line, key[3])
        for key, line in measured.items()
        if key[:3] == ("JAX", "Xception", "float32") and line["seconds"]
    ]
    figure, axes = chart("Xception 299, batch 64, float32 on JAX, H200", "measured peak, GiB", "milliseconds a step")
    xs, ys = [line["peak_bytes"] / GIB for line, _ in points], [1000 * line["seconds"] for line, _ in points]
    axes.plot(xs, ys, color="#4477aa", marker="o", linewidth=1.2)
    for x, y, (_, remat) in zip(xs, ys, points, strict=True):
        below = remat == "blocks"  # it is next to a budget
        axes.annotate(remat, (x, y), xytext=(5, -12 if below else 5), textcoords="offset points", color=INK, fontsize=8)
    axes.set_ylim(0, 1.15 * max(ys))
    axes.set_xlim(0, 1.1 * max(xs))
    figure.savefig(PICTURE, metadata={"Date": None})


def draw_curves(predicted: dict[Key, Line], measured: dict[Key, Line]) -> None:
    """The predicted curves of all models, and what was measured of them."""
    from fitroom.report.shared.palette import GROUP_COLOURS

    figure, axes = chart(
        "Batch 64, float32 on JAX, H200: predicted, and measured (hollow)", "peak, of none", "time of a step, of none"
    )
    models = sorted({key[1] for key in predicted if key[:3] == ("JAX", key[1], "float32")})
    for model, color in zip(models, GROUP_COLOURS, strict=False):
        for lines, seconds, style in (
            (predicted, "predicted_seconds", {"marker": "o", "linewidth": 1.2, "label": model}),
            (measured, "seconds", {"marker": "o", "markerfacecolor": "none", "markersize": 8, "linestyle": "none"}),
        ):
            plain = lines["JAX", model, "float32", "none"]
            points = [line for key, line in lines.items() if key[:3] == ("JAX", model, "float32") and line.get(seconds)]
            xs = [line["peak_bytes"] / plain["peak_bytes"] for line in points]
            axes.plot(xs, [line[seconds] / plain[seconds] for line in points], color=color, **style)
    axes.set_xlim(0, 1.1)
    axes.legend(frameon=False, fontsize=8)
    figure.savefig(PICTURE_OF_MODELS, metadata={"Date": None})


def chart(title: str, across: str, up: str) -> tuple[Any, Any]:
    """An empty one in our colours."""
    from matplotlib.figure import Figure

    from fitroom.report.shared.palette import INK, LINE, MUTED, PAPER

    figure = Figure(figsize=(7.2, 4.0), facecolor=PAPER, layout="constrained")
    axes = figure.add_subplot(facecolor=PAPER)
    axes.set_xlabel(across, color=MUTED)
    axes.set_ylabel(up, color=MUTED)
    axes.set_title(title, color=INK, fontsize=10, loc="left")
    axes.grid(color=LINE, linewidth=0.7)
    axes.tick_params(colors=MUTED, length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)
    return figure, axes


def backend(line: Line) -> str:
    """With the mode of TensorFlow."""
    mode = {None: "", True: ", jitted", False: ", graph"}[line["jit"]]
    return f"{NAMES[line['backend']]}{mode}"


if __name__ == "__main__":
    main()
