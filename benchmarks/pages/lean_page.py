"""Write what smaller models cost in accuracy into docs/howto/lean.md, from the results.

    python benchmarks/pages/lean_page.py [--check]

With `--check` nothing is written: exit code 1 where the page differs from what the results say.
"""

import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
from pages.page_figures import write_figures

RESULTS = Path(__file__).parents[1] / "results" / "lean.jsonl"
NAMES = {"xception": "Xception", "mobilenetv2": "MobileNetV2", "vgg": "VGG-like"}
KINDS = {
    "plain": "none",
    "structured": "half of the channels pruned",
    "unstructured": "80 % of the weights zero",
    "separable": "separable convolutions",
    "three": "none; three of the classes",
    "head": "from three classes to five: new head",
    "lora": "from three classes to five: LoRA on pointwise convolutions, new head",
}
BACKENDS = {"jax": "JAX", "torch": "PyTorch", "tensorflow": "TensorFlow"}
FORMATS = {"litert": "LiteRT", "onnx": "ONNX"}
Lines = dict[str, dict[str, Any]]


def figures() -> str:
    """The tables; a word where there are no results yet."""
    if not RESULTS.exists():
        return "Not measured yet.\n"
    lines = gather(map(json.loads, RESULTS.read_text().splitlines()))
    parts = [describe(lines), *training_table(lines), "", *quantized_table(lines)]
    return "\n".join(parts).rstrip() + "\n"


def gather(read: Iterable[dict[str, Any]]) -> Lines:
    """A line for each change: what its first seed says, and the images that were right by seed."""
    lines: Lines = {}
    for line in sorted(read, key=lambda each: str(each["task"])):
        task, _, seed = line["task"].rpartition(":")
        found = lines.setdefault(task or line["task"], line | {"right": {}})
        if task:
            found["right"][seed] = line["right"]
    return lines


def describe(lines: Lines) -> str:
    """What the tables show and what they were measured with."""
    trained = next(line for task, line in lines.items() if ":" in task)
    counts = sorted({len(right) for task, line in lines.items() if ":" in task for right in line["right"].values()})
    return (
        f"Trained on {trained['versions']['gpu']} with {BACKENDS[trained['backend']]}, {trained['image_size']} px, "
        f"batch {trained['batch_size']}; accuracy on {counts[-1]} images of validation, the mean of the seeds. ± is "
        "half of a 95 % interval, by drawing images and seeds again, paired with what the change started from. One "
        "image on the CPU is by the LiteRT file in float, one thread.\n"
    )


def training_table(lines: Lines) -> Iterator[str]:
    """A row for each change."""
    yield (
        "| model | change | seeds | accuracy | change of accuracy, points | parameters | peak in training, predicted | "
        "file, compressed | one image on the GPU | on the CPU |"
    )
    yield "|---|---|---:|---:|---:|---:|---:|---:|---:|---:|"
    on_card = lines.get("latency", {}).get("seconds", {})
    on_cpu = {f"{each['kind']}:{each['model']}": each for each in lines.get("int8", {}).get("float_files", ())}
    for name in NAMES:
        for kind in KINDS:
            task = f"{kind}:{name}"
            if task not in lines:
                continue
            line, beside = lines[task], lines.get(f"{'head' if kind == 'lora' else 'plain'}:{name}")
            change = "-"
            if beside and kind not in ("plain", "three", "head"):
                points, half = interval(line, beside)
                change = f"{points:+.1f} ± {half:.1f}" + (", against a new head alone" if kind == "lora" else "")
            rights = "".join(line["right"].values())
            accuracy = 100 * rights.count("1") / len(rights)
            peak = line.get("predicted_peak_bytes")
            times = [
                f"{1000 * seconds:.1f} ms" if seconds else "-"
                for seconds in (on_card.get(task), on_cpu.get(task, {}).get("latency_seconds"))
            ]
            yield (
                f"| {NAMES[name]} | {KINDS[kind]} | {len(line['right'])} | {accuracy:.1f} % | {change} | "
                f"{line['parameters'] / 1e6:.2f} M | "
                f"{f'{peak / 2**20:,.0f} MiB' if peak else '-'} | {line['compressed_bytes'] / 2**20:.1f} MiB | "
                f"{' | '.join(times)} |"
            )


def quantized_table(lines: Lines) -> Iterator[str]:
    """A row for each kind of 8-bit file."""
    if "int8" not in lines:
        return
    yield (
        "| model | 8-bit file | same class as in float | accuracy in float | in 8 bits | times smaller | "
        "weights in 8 bits | one image on the CPU |"
    )
    yield "|---|---|---:|---:|---:|---:|---:|---:|"
    for name in NAMES:
        for format_name, shown in FORMATS.items():
            some = [each for each in lines["int8"]["files"] if (each["model"], each["format"]) == (name, format_name)]
            if not some:
                continue
            mean = {
                key: sum(each[key] for each in some) / len(some)
                for key, value in some[0].items()
                if isinstance(value, float | int)
            }
            yield (
                f"| {NAMES[name]} | {shown} | {100 * mean['agreement']:.1f} % | {100 * mean['float_accuracy']:.1f} % | "
                f"{100 * mean['accuracy']:.1f} % | {mean['float_bytes'] / mean['size_bytes']:.1f} | "
                f"{100 * mean['quantized_share']:.1f} % | {1000 * mean['latency_seconds']:.1f} ms |"
            )


def interval(task: dict[str, Any], beside: dict[str, Any]) -> tuple[float, float]:
    """The change in accuracy in points, and half of its 95 % interval, paired on images and seeds.

    Seeds and images both vary: the interval is by 10,000 samples of images and of seeds, drawn again.
    """
    import numpy as np

    pairs = [
        np.array([int(a) - int(b) for a, b in zip(task["right"][seed], beside["right"][seed], strict=True)])
        for seed in sorted(set(task["right"]) & set(beside["right"]))
    ]
    table = np.stack(pairs).astype(float)
    random = np.random.default_rng(0)
    seeds, images = table.shape
    drawn = [
        random.multinomial(seeds, [1 / seeds] * seeds) @ table @ random.multinomial(images, [1 / images] * images)
        for _ in range(10_000)
    ]
    low, high = np.percentile(drawn, [2.5, 97.5]) / table.size
    return 100 * float(table.mean()), 100 * float(high - low) / 2


if __name__ == "__main__":
    write_figures("howto/lean.md", "pages/lean_page.py", figures())
