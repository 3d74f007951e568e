"""Writes the figures of docs/reliability.md from results/faults.jsonl.

python benchmarks/pages/faults_page.py [--check]
"""

import json
import sys
from collections import defaultdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from pages.page_figures import write_figures

RESULTS = Path(__file__).parents[1] / "results" / "faults.jsonl"
COUNTED = ("tries", "survived", "lost", "hangs", "code_run")
WORDS = {
    "kills": "`kill -9` within `fit` or `fitroom train`",
    "torn": "run folders with torn files",
    "disks": "disks that are too small",
    "errors": "calls of the system that fail (EIO, ENOSPC)",
    "hostile": "hostile run folders and `.keras` files",
    "dirty": "dirty images",
    "memory": "out-of-memory errors, every sample counted",
    "rounds": "trainings in one process, memory grows no more than in plain Keras",
    "misuse": "wrong calls, beside Keras",
}


def main() -> None:
    """All lines of the newest version of fitroom that has any."""
    lines = [json.loads(line) for line in RESULTS.read_text().splitlines()] if RESULTS.exists() else []
    version = lines[-1]["fitroom"] if lines else ""
    counts: dict[tuple[str, str], list[dict[str, int]]] = defaultdict(list)
    for line in lines:
        if line["fitroom"] == version:
            counts[line["kind"], line["backend"]].append(line)
    rows = []
    for kind, words in WORDS.items():
        for backend in ("jax", "tensorflow", "torch"):
            if found := counts.get((kind, backend)):
                sums = [sum(line[name] for line in found) for name in COUNTED]
                rows.append(f"| {words} | {backend} | {' | '.join(f'{number:,}' for number in sums)} |")
    head = "| what | backend | tries | survived | lost | hung | code run |\n|---|---|---:|---:|---:|---:|---:|\n"
    dates = sorted({line["date"] for line in lines if line["fitroom"] == version})
    when = f"\nfitroom {version}, on CPUs, {dates[0]} to {dates[-1]}.\n" if dates else ""
    write_figures("reliability.md", "pages/faults_page.py", head + "\n".join(rows) + "\n" + when)


if __name__ == "__main__":
    main()
