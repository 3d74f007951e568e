"""Makes the helper modules of this folder importable, which `--import-mode=importlib` leaves out."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
