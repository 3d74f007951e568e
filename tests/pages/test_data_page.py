"""What docs/data.md says of speed and memory is what the committed results say."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_page_is_what_the_results_make_of_it():
    command = [sys.executable, ROOT / "benchmarks" / "measure" / "data.py", "--page", "--check"]
    finished = subprocess.run(command, capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr
