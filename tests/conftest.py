"""Makes the modules of this folder and of benchmarks/ importable, which `--import-mode=importlib` leaves out."""

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent / "benchmarks")]
