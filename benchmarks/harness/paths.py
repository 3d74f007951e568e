"""Where things are in the repository."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src"
RESULTS = ROOT / "benchmarks" / "results"

TEST_HELPERS = ROOT / "tests" / "helpers"
"""Trainings that tests and benchmarks share, such as killed_run.py and pressure.py."""
