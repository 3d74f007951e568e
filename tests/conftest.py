"""Makes the modules of this folder and of benchmarks/ importable, which `--import-mode=importlib` leaves out."""

import signal
import sys
from pathlib import Path

# A shell that starts tests in the background has them ignore Ctrl-C, and processes inherit that: here it is tested.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent / "benchmarks")]
