"""Write the figures of loops into docs/questions/memory_in_loops.md, from the results.

    python benchmarks/pages/loops_page.py [--check]

With `--check` nothing is written: exit code 1 where the page differs from what the results say.
"""

import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
from pages.page_figures import write_figures

RESULTS = Path(__file__).parents[1] / "results" / "loops.jsonl"
NAMES = {"jax": "JAX", "torch": "PyTorch", "tensorflow": "TensorFlow"}
WAYS = {"plain": "nothing", "advice": "`clear_session()` and `gc.collect()`", "fresh": "`fitroom.fresh()`"}


def figures() -> str:
    """A row for each backend and way, of the rounds of Xception on a card."""
    lines = [json.loads(line) for line in RESULTS.read_text().splitlines()]
    found = {(line["backend"], line["way"]): line for line in lines if line["model"] == "xception96"}
    rows = [
        f"| {NAMES[backend]} | {words} | {line['rounds']} | {held(line, 'device')} | {held(line, 'process')} |"
        for backend in ("tensorflow", "torch", "jax")
        for way, words in WAYS.items()
        if (line := found.get((backend, way)))
    ]
    head = "| backend | after each round | rounds | held on the card: first, last, most | process: first, last |"
    return "\n".join([head, "|---|---|---:|---|---|", *rows]) + "\n"


def held(line: dict[str, Any], what: str) -> str:
    """The bytes after the first and the last round, in MiB; of the card also the most of all rounds."""
    sizes = [round(size / 2**20) for size in line["readings"][what]]
    most = f", {max(sizes):,}" if what == "device" else ""
    return f"{sizes[0]:,}, {sizes[-1]:,}{most} MiB"


if __name__ == "__main__":
    write_figures("questions/memory_in_loops.md", "pages/loops_page.py", figures())
