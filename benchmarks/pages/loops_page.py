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
WAYS = {
    "plain": "nothing",
    "advice": "`clear_session()` and `gc.collect()`",
    "fresh": "`fitroom.fresh()`",
    "trials": "each round in `fitroom.trials`",
}
SMALL = """
The same with a net of three dense layers (83,000 weights, Adam, two steps a round) on a CPU, where TensorFlow does not
use XLA. Growth is that from round 5 on, in bytes a round, with its 95 % interval; the last column is the upper end as a
share of the most that the process had:

"""


def figures() -> str:
    """A table of the rounds of Xception on a card, and one of the rounds of a small net on a CPU."""
    lines = [json.loads(line) for line in RESULTS.read_text().splitlines()]
    head = "| backend | after each round | rounds | held on the card: first, last, most | process: first, last |"
    on_card = [
        f"| {name} | {words} | {line['rounds']} | {held(line, 'device')} | {held(line, 'process')} |"
        for name, words, line in by_way(lines, "xception96")
    ]
    head_small = "| backend | after each round | rounds | arrays, a round | process, a round | upper end |"
    small = [
        f"| {name} | {words} | {line['rounds']} | {grown(line['device'])} | {grown(line['process'])} | "
        f"{100 * line['process']['high_bytes'] / line['process']['peak_bytes']:.3f} % |"
        for name, words, line in by_way(lines, "dense")
    ]
    tables = ["\n".join([head, "|---|---|---:|---|---|", *on_card])]
    if small:
        tables.append("\n".join([head_small, "|---|---|---:|---|---|---:|", *small]))
    return SMALL.join(f"{table}\n" for table in tables)


def by_way(lines: list[dict[str, Any]], model: str) -> list[tuple[str, str, dict[str, Any]]]:
    """The last line of each backend and way of a model, with the names for people."""
    found = {(line["backend"], line["way"]): line for line in lines if line["model"] == model}
    return [
        (NAMES[backend], words, found[backend, way])
        for backend in ("tensorflow", "torch", "jax")
        for way, words in WAYS.items()
        if (backend, way) in found
    ]


def grown(judged: dict[str, Any]) -> str:
    """How much of it there was more after each round."""
    low, growth, high = (round(judged[name]) for name in ("low_bytes", "bytes_a_round", "high_bytes"))
    return "0" if low == growth == high == 0 else f"{growth:,} ({low:,} to {high:,})"


def held(line: dict[str, Any], what: str) -> str:
    """The bytes after the first and the last round, in MiB; of the card also the most of all rounds."""
    sizes = [round(size / 2**20) for size in line["readings"][what]]
    most = f", {max(sizes):,}" if what == "device" else ""
    return f"{sizes[0]:,}, {sizes[-1]:,}{most} MiB"


if __name__ == "__main__":
    write_figures("questions/memory_in_loops.md", "pages/loops_page.py", figures())
