"""Write the figures of loops into docs/questions/memory_in_loops.md, from the results.

    python benchmarks/pages/loops_page.py [--check]

With `--check` nothing is written: exit code 1 where the page differs from what the results say.
"""

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
from fitroom.loops.slope import fit_slope
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
GOES_ON = """
The growth with `fitroom.fresh()` by rounds, from the longest of these loops:

"""
PARTS = ((5, 35), (35, 65), (65, 100), (100, 200), (200, 300))
TABLE_ROUNDS = 100
"""Loops of more rounds show how growth goes on; they are not in the tables that compare the ways."""

PIECES = """
What TensorFlow keeps of each piece of a round on the host, measured three times
([results](../../benchmarks/results/loop_pieces.json), by
[benchmarks/measure/loop_pieces.py](../../benchmarks/measure/loop_pieces.py)); "emptied" where the cache of kernels is
emptied after each, as `fresh()` does after a round:

"""


def figures() -> str:
    """Tables: Xception on a card, a small net on a CPU, how its growth goes on, what each piece of a round keeps."""
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
    return SMALL.join(f"{table}\n" for table in tables) + GOES_ON + going_on(lines) + PIECES + pieces()


def going_on(lines: list[dict[str, Any]]) -> str:
    """How the growth with `fresh` changes from part to part of the loop."""
    rows = ["| backend | rounds | process, a round | in use, a round |", "|---|---|---|---|"]
    for backend in ("tensorflow", "jax"):
        wanted = (backend, "fresh", "dense")
        loops = [line for line in lines if (line["backend"], line["way"], line["model"]) == wanted]
        readings = max(reversed(loops), key=lambda line: line["rounds"])["readings"]
        for first, end in PARTS:
            process, heap = (fit_slope(readings[kind][first:end]) for kind in ("process", "heap"))
            if process and heap and len(readings["process"]) >= end:
                grown_each = f"{grown(asdict(process))} | {grown(asdict(heap))}"
                rows.append(f"| {NAMES[backend]} | {first} to {end - 1} | {grown_each} |")
    return "\n".join(rows) + "\n"


def pieces() -> str:
    """What each piece keeps."""
    kept = json.loads((RESULTS.parent / "loop_pieces.json").read_text())["bytes_each"]
    rows = [f"| {name} | {', '.join(f'{size:,.0f}' for size in sizes)} |" for name, sizes in kept.items()]
    return "\n".join(["| piece | bytes |", "|---|---|", *rows]) + "\n"


def by_way(lines: list[dict[str, Any]], model: str) -> list[tuple[str, str, dict[str, Any]]]:
    """The last line of each backend and way of a model, with the names for people."""
    found = {
        (line["backend"], line["way"]): line
        for line in lines
        if line["model"] == model and line["rounds"] <= TABLE_ROUNDS
    }
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
