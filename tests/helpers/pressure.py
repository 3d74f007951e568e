"""A training of pressure_run.py in a process of its own, under a limit."""

import json
import os
from pathlib import Path
from typing import Any

from ready_process import run_forked

SCRIPT = Path(__file__).with_name("pressure_run.py")
LIMIT_MB = 250
SUM_OF_NUMBERS = 22296
"""Of the numbers that the 720 pictures carry."""


def limited(limit_mb: int) -> dict[str, str]:
    """The environment of a process whose TensorFlow has so much memory on the CPU, and dies of it as on a card."""
    return os.environ | {
        "KERAS_BACKEND": "tensorflow",
        "TF_CPP_MIN_LOG_LEVEL": "2",
        "TF_CPU_ALLOCATOR_USE_BFC": "true",
        "TF_CPU_BFC_MEM_LIMIT_IN_MB": str(limit_mb),
        "TF_ENABLE_ONEDNN_OPTS": "0",  # its kernels crash when memory runs out
    }


def trained(*arguments: Any, limit_mb: int = LIMIT_MB, **environment: str) -> dict[str, Any]:
    """What came of it."""
    surroundings = {"cwd": SCRIPT.parent, "env": limited(limit_mb) | environment}
    done = run_forked(str(SCRIPT), *map(str, arguments), backend="tensorflow", **surroundings)
    results = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    assert results, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(results[-1][7:])
    return found
