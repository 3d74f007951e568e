"""Figures on a page of docs/, between two marks, written from the results."""

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
END = "<!-- /figures -->"


def write_figures(page: str, script: str, figures: str) -> None:
    """Put them there. With `--check` nothing is written: exit code 1 where the page differs from what they say."""
    path = ROOT / "docs" / page
    text = path.read_text()
    begin = f"<!-- figures: written by benchmarks/{script} -->"
    before, rest = text.split(begin)
    written = f"{before}{begin}\n{figures}{END}{rest.split(END)[1]}"
    if "--check" in sys.argv:
        sys.exit(0 if written == text else f"docs/{page} is not what the results say: run benchmarks/{script}")
    path.write_text(written)
