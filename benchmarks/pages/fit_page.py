"""Write the figures of training into docs/training.md, from the results.

    python benchmarks/pages/fit_page.py [--check]

With `--check` nothing is written: exit code 1 where the page differs from what the results say.
"""

import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
from pages.page_figures import write_figures

HERE = Path(__file__).parent
NAMES = {"jax": "JAX", "torch": "PyTorch", "tensorflow": "TensorFlow"}


def figures() -> str:
    """The tables, the last result of each kind."""
    found = read("fit.jsonl")
    speeds = {(key(line), training): line[training] for line in of(found, "speed") for training in trainings(line)}
    peaks = {(key(line), training): line[training] for line in of(found, "memory") for training in trainings(line)}
    rows = [
        f"| {title(place)} | {words[training]} | {ratio(speeds.get((place, training)))} | "
        f"{ratio(peaks.get((place, training)))} |"
        for place, training in sorted({*speeds, *peaks})
        for words in [{"plain": "whole batches", "accumulate": "4 micro-batches a batch, beside Keras's accumulation"}]
    ]
    survived = [
        f"| {title(place)} | {line['limit']} | {line['updates']} | {' '.join(map(str, line['tried'])) or '-'} | "
        f"{line['micro_batch']} | {last(line['seconds_to_next_step'])} |"
        for (place, _), line in sorted({(key(line), line["limit"]): line for line in of(found, "survive")}.items())
    ]
    kills = read("kills.jsonl")
    killed = [
        f"| {NAMES[name]} | {sums['kills']} | {sums['bit_identical']} of {sums['runs']} |"
        for name in sorted({line["backend"] for line in kills})
        for sums in [{what: total(kills, name, what) for what in ("kills", "bit_identical", "runs")}]
    ]
    kept = [
        f"| {title(place)} | {every:.0f} s | {ratio(line)} |"
        for (place, every), line in sorted(
            {(key(line), line["every_s"]): line for line in of(found, "checkpoint")}.items()
        )
    ]
    tables = [
        ["| where | what | time, fitroom / Keras | peak, fitroom / Keras |", "|---|---|---:|---:|", *rows],
        [
            "Xception at 299 pixels, batch 256, on an H200 whose allocator is capped: 20 batches and a short one.",
            "",
            "| where | cap | updates | did not fit | micro-batch in the end | s from error to next step |",
            "|---|---:|---:|---|---:|---:|",
            *survived,
        ],
        [
            "A run folder with checkpoints, beside none:",
            "",
            "| where | a checkpoint every | time, with / without |",
            "|---|---:|---:|",
            *kept,
        ],
        [
            "`kill -9` at random moments, on a CPU:",
            "",
            "| backend | kills | runs that ended bit for bit as if never killed |",
            "|---|---:|---:|",
            *killed,
        ],
    ]
    return "\n\n".join("\n".join(table) for table in tables) + "\n"


def total(lines: list[dict[str, Any]], backend: str, what: str) -> int:
    """Over all calls for a backend."""
    return sum(line[what] for line in lines if line["backend"] == backend)


def read(name: str) -> list[dict[str, Any]]:
    """A file of results."""
    file = HERE.parent / "results" / name
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def of(lines: list[dict[str, Any]], what: str) -> list[dict[str, Any]]:
    """Those of one kind."""
    return [line for line in lines if line["what"] == what]


def trainings(line: dict[str, Any]) -> list[str]:
    """Which of the two trainings a line has."""
    return [name for name in ("plain", "accumulate") if name in line]


def key(line: dict[str, Any]) -> tuple[str, str, str]:
    """Where it was measured: device, backend, mode."""
    mode = {True: "jitted", False: "graph", None: ""}[line["jit"]]
    return line.get("gpu", line["device"]).removeprefix("NVIDIA "), line["backend"], mode


def title(place: tuple[str, str, str]) -> str:
    """The same in words."""
    device, backend, mode = place
    return f"{NAMES[backend]}{f', {mode}' if mode else ''}, {device}"


def ratio(found: dict[str, Any] | None) -> str:
    """A ratio, or a dash where none was measured."""
    return f"{found['ratio']:.3f}" if found and "ratio" in found else "-"


def last(seconds: list[float | None]) -> str:
    """Of the last error, after which the step went well."""
    known = [one for one in seconds if one is not None]
    return f"{known[-1]:.1f}" if known else "-"


if __name__ == "__main__":
    write_figures("training.md", "pages/fit_page.py", figures())
