"""Write the figures of latency into docs/latency.md, from the results.

    python benchmarks/pages/latency_page.py [--check]

With `--check` nothing is written: exit code 1 where the page differs from what the results say.
"""

import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
from pages.page_figures import write_figures

RESULTS = Path(__file__).parents[1] / "results" / "latency.jsonl"
NAMES = {"jax": "JAX", "torch": "PyTorch", "tensorflow": "TensorFlow"}


def figures() -> str:
    """A row for each case, before and after; of several lines of one case the last counts."""
    lines = [json.loads(line) for line in RESULTS.read_text().splitlines()]
    found = {(line["case"], line["label"]): line for line in lines}
    cases = dict.fromkeys(line["case"] for line in lines)
    rows = [
        f"| {case.rpartition('/')[0]} | {NAMES[case.rpartition('/')[2]]} | {_say(found.get((case, 'before')))} | "
        f"{_say(found.get((case, 'after')))} | {_say_first(found.get((case, 'after')))} | "
        f"{_say_silence(found.get((case, 'before')))} | {_say_silence(found.get((case, 'after')))} |"
        for case in cases
    ]
    head = (
        "| command | backend | before | after | first answer | longest silence before | after |\n"
        "|---|---|---:|---:|---:|---:|---:|"
    )
    return "\n".join([head, *rows]) + "\n"


def _say(line: dict[str, Any] | None) -> str:
    return f"{line['seconds']:.1f} s ({line['ratio']:.2f} times)" if line else "-"


def _say_first(line: dict[str, Any] | None) -> str:
    ratio = line and line["first_answer_ratio"]
    return f"{ratio:.2f} times" if ratio else "-"


def _say_silence(line: dict[str, Any] | None) -> str:
    return f"{line['longest_silence_seconds']:.0f} s" if line else "-"


if __name__ == "__main__":
    write_figures("latency.md", "pages/latency_page.py", figures())
