"""Run folders made by hand, with the files and the values of a real training."""

import base64
import json
import math
import struct
import zlib
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from fitroom.memory.estimate import Estimate
from fitroom.memory.timeline import Buffer, Moment, Timeline
from fitroom.planning.result import Plan
from fitroom.recipe import Recipe
from sample_estimates import GIB, MIB, estimate_of
from sample_plans import sample_plan

CLASSES = ("daisy", "dandelion", "roses", "sunflowers", "tulips")
BEGUN = 1_700_000_000.0
BEGUN_TEXT = "2023-11-14T22:13:20+0000"
PEAK_BYTES = 7_960_000_000
EPOCHS = 10
COMMAND_OPTIONS = ("--batch-size", "256", "--budget", "8GiB", "--run-dir", "runs/a")


def write_run(
    folder: Path,
    *,
    classes: Iterable[str] = CLASSES,
    num_readings: int = 400,
    plan: Plan | None = None,
    without: Iterable[str] = (),
) -> Path:
    """A finished `fitroom train`, less the files that are named in `without`."""
    names = tuple(classes)
    folder.mkdir(parents=True, exist_ok=True)
    texts = {
        "run.json": json.dumps(run_facts()),
        "history.json": json.dumps(history()),
        "log.jsonl": _lines(events()),
        "job.json": json.dumps(job(names) | {"plan": (plan or sample_plan()).to_dict()}),
        "estimate.json": json.dumps(step_estimate().to_dict(with_timeline=True)),
        "readings.jsonl": _lines(readings(num_readings)),
        "results.json": json.dumps(results(names)),
        "skipped.jsonl": _lines(skipped()),
    }
    for name, text in texts.items():
        if name not in without:
            (folder / name).write_text(text)
    return folder


def write_plain_run(folder: Path, *, state: str = "finished") -> Path:
    """What `fitroom.fit(run_dir=...)` leaves: no job, no readings, no results."""
    others = ("job.json", "estimate.json", "readings.jsonl", "results.json", "skipped.jsonl")
    write_run(folder, without=others)
    (folder / "run.json").write_text(json.dumps(run_facts() | {"state": state}))
    return folder


def run_facts() -> dict[str, Any]:
    return {
        "format": 1,
        "state": "finished",
        "begun": BEGUN_TEXT,
        "updated": "2023-11-14T22:25:38+0000",
        "model": {"optimizer": {"class": "Adam"}},
        "batch_size": 256,
        "backend": "jax",
        "epochs": EPOCHS,
        "seed": 7,
        "recipe": {"micro_batch": 64},
        "versions": {"python": "3.11.9", "fitroom": "0.1.0", "keras": "3.15.1", "jax": "0.10.2"},
        "learning_rate": 0.001,
    }


def history() -> dict[str, list[float]]:
    epochs = range(EPOCHS)
    return {
        "accuracy": [round(0.95 - 0.6 * math.exp(-0.45 * epoch), 4) for epoch in epochs],
        "loss": [round(0.18 + 1.4 * math.exp(-0.42 * epoch), 4) for epoch in epochs],
        "val_accuracy": [round(0.912 - 0.5 * math.exp(-0.5 * epoch) + 0.012 * (-1) ** epoch, 4) for epoch in epochs],
        "val_loss": [round(0.33 + 1.1 * math.exp(-0.5 * epoch) + 0.03 * (-1) ** epoch, 4) for epoch in epochs],
    }


def events() -> list[dict[str, Any]]:
    return [
        {
            "time": "2023-11-14T22:14:02+0000",
            "kind": "out of memory",
            "message": "out of memory in training with micro-batch 80; the same batch again with micro-batch 64. "
            "The batch stays at 256.",
            "samples": 80,
            "smaller": 64,
        },
        {
            "time": "2023-11-14T22:14:02+0000",
            "kind": "batch statistics",
            "message": "BatchNormalization sees micro-batches of 64 samples instead of the whole batch; its moving "
            "statistics move as far as with the whole batch.",
        },
    ]


def readings(count: int) -> Iterable[dict[str, Any]]:
    """Over 12 minutes, whatever their number."""
    for number in range(count):
        part = number / count
        epoch = int(part * EPOCHS)
        warm = min(part * 10, 1.0)
        yield {
            "time": BEGUN + 20 + 715 * part,
            "epoch": epoch,
            "batch": int((part * EPOCHS - epoch) * 23),
            "update": int(part * EPOCHS * 23),
            "loss": 0.18 + 1.4 * math.exp(-4.2 * part),
            "metrics": {"accuracy": 0.95 - 0.6 * math.exp(-4.5 * part)},
            "learning_rate": 0.001 * warm * (0.5 + 0.5 * math.cos(math.pi * part)),
            "pictures_per_second": 405 + 12 * math.sin(number / 9) - (180 if number % 40 == 0 else 0),
            "in_use_bytes": PEAK_BYTES - 300 * MIB - 40 * MIB * (number % 7),
            "peak_bytes": PEAK_BYTES if part > 0.04 else PEAK_BYTES - 900 * MIB,
            "reserved_bytes": 8 * GIB,
            "limit_bytes": 8 * GIB,
            "host_bytes": 3 * GIB + int(part * 200) * MIB,
            "micro_batch": 64 if part > 0.03 else 80,
            "spent_seconds": {"compiling": 40.0, "training": 500 * part, "validating": 60 * part},
        }


def job(classes: tuple[str, ...]) -> dict[str, Any]:
    counts = [633, 898, 641, 699, 799]
    share = {"train": 0.8, "validation": 0.2}
    return {
        "format": 1,
        "command": ["/usr/bin/fitroom", "train", "my flowers/", "--model", "xception", *COMMAND_OPTIONS],
        "options": {"model": "xception", "batch_size": 256, "budget": "8GiB"},
        "begun": BEGUN_TEXT,
        "model": {
            "text": "xception",
            "name": "Xception",
            "parameters": 20_871_725,
            "trainable_parameters": 20_817_197,
            "weights": "none",
        },
        "backend": "jax",
        "device": "NVIDIA H200",
        "image_size": 299,
        "classes": list(classes),
        "precision": {"policy": "mixed_bfloat16", "why": "This card multiplies bfloat16 fast."},
        "budget": {"bytes": 8 * GIB, "source": "--budget 8GiB"},
        "recipe": {"batch_size": 256, "micro_batch": 64, "precision": "mixed_bfloat16", "jit": None, "remat": "blocks"},
        "recipe_why": "A batch of 256 needs 28.31 GiB at once. In parts of 64 it needs 7.35 GiB, which is the largest "
        "part that fits the budget of 8.00 GiB; every update still sees all 256 pictures.",
        "optimizer": "adam",
        "learning_rate": 0.001,
        "epochs": EPOCHS,
        "data": {
            "folder": "my flowers/",
            "layout": "a folder per class",
            "seed": 7,
            "counts": {
                split: {name: round(part * counts[i % 5]) for i, name in enumerate(classes)}
                for split, part in share.items()
            },
            "duplicates": 2,
            "skipped": 3,
        },
        "augmentation": {"flip": True, "rotation": 0.05, "zoom": 0.1, "shear": None},
        "versions": {"fitroom": "0.1.0", "keras": "3.15.1", "jax": "0.10.2", "python": "3.11.9"},
    }


def results(classes: tuple[str, ...]) -> dict[str, Any]:
    size = len(classes)
    confusion = [[(7 * row + 3 * column) % 8 for column in range(size)] for row in range(size)]
    for index in range(size):
        confusion[index][index] = 118 + 11 * (index % 5)
    return {
        "split": "validation",
        "metrics": {"loss": 0.331, "accuracy": 0.9},
        "classes": list(classes),
        "confusion": confusion,
        "per_class": {},
        "samples": [_sample(classes, number) for number in range(24)],
    }


def skipped() -> list[dict[str, str]]:
    return [
        {"file": "daisy/half_a_picture.jpg", "reason": "cut short: the file ends within the picture"},
        {"file": "roses/notes.txt", "reason": "not a picture"},
        {"file": "tulips/empty.jpg", "reason": "empty file"},
    ]


def step_estimate() -> Estimate:
    """A step of a net with forty layers: activations pile up on the way forward and go on the way back."""
    depth = 40
    layers = [f"block{1 + index // 4}_{('conv', 'batch_norm', 'relu', 'pool')[index % 4]}" for index in range(depth)]
    sizes = [int((545 - 10 * index) * MIB * (0.35 if index % 4 else 1.0)) for index in range(depth)]
    end = 3 * depth - 1
    forward = [Moment(name=f"fusion.{i}", layer=layer, phase="forward") for i, layer in enumerate(layers)]
    backward = [Moment(name=f"grad.{i}", layer=layer, phase="backward") for i, layer in enumerate(reversed(layers))]
    update = [Moment(name=f"adam.{i}", layer=layer, phase="update") for i, layer in enumerate(layers)]
    buffers = [
        Buffer(size_bytes=80 * MIB, kind="weights", layer=layers[-1], first=0, last=end),
        Buffer(size_bytes=160 * MIB, kind="optimizer", layer=layers[-1], first=0, last=end),
        Buffer(size_bytes=66 * MIB, kind="input", layer=None, first=0, last=2 * depth),
    ]
    for index, (layer, size) in enumerate(zip(layers, sizes, strict=True)):
        last = 2 * depth - 1 - index
        buffers.append(Buffer(size_bytes=size, kind="activations", layer=layer, first=index, last=last))
        buffers.append(Buffer(size_bytes=size // 6, kind="gradients", layer=layer, first=last, last=2 * depth + index))
        if index % 4 == 0:
            buffers.append(Buffer(size_bytes=size // 2, kind="workspace", layer=layer, first=last, last=last))
    made = estimate_of(Timeline(buffers=tuple(buffers), moments=(*forward, *backward, *update)))
    return replace(
        made,
        model="Xception",
        gpu="NVIDIA H200",
        batch_size=256,
        limit_bytes=8 * GIB,
        required_bytes=made.peak_bytes + 200 * MIB,
        precision="mixed_bfloat16",
        recipe=Recipe(precision="mixed_bfloat16", micro_batch=64),
    )


def _sample(classes: tuple[str, ...], number: int) -> dict[str, Any]:
    label = classes[number % len(classes)]
    answer = label if number % 2 else classes[(number + 1) % len(classes)]
    others = [name for name in classes if name != answer][:4]
    sure = 0.52 + 0.02 * (number % 12)
    rest = [(1 - sure) * share for share in (0.6, 0.2, 0.15, 0.05)]
    return {
        "file": f"{label}/picture_{number:03}.jpg",
        "label": label,
        "top": [[answer, sure], *([name, share] for name, share in zip(others, rest, strict=False))],
        "thumbnail": _picture(number) if number % 8 else None,
    }


def _picture(number: int, size: int = 96) -> str:
    """A flower of a few colours as a PNG, drawn without a library."""
    hue = (200 + 40 * (number % 2), 60 + 30 * (number % 6), 80 + 20 * (number % 8))
    rows = bytearray()
    for y in range(size):
        rows.append(0)
        for x in range(size):
            across, up = (x - size / 2) / size, (y - size / 2) / size
            petal = 0.28 + 0.12 * math.cos((5 + number % 4) * math.atan2(up, across))
            away = math.hypot(across, up)
            rows += bytes((250, 210, 60) if away < 0.1 else hue if away < petal else (90, 140 + y // 2, 90))
    header = struct.pack(">IIBBBBB", size, size, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(bytes(rows), 9)), (b"IEND", b""))
    png = b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )
    return "data:image/png;base64," + base64.b64encode(png).decode()


def _lines(values: Iterable[dict[str, Any]]) -> str:
    return "".join(json.dumps(value) + "\n" for value in values)
