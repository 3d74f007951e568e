"""Wrong calls of the API, each beside the same call of Keras: a clear error, and a model that still trains."""

import json
import subprocess
import sys
from pathlib import Path

from faults.command import HERE, SECONDS, environment
from faults.outcome import Outcome
from harness.paths import SOURCE


def call_wrongly(folder: Path, backend: str, seed: int, outcome: Outcome) -> None:
    """All wrong calls on one backend, in a process of their own."""
    own = {"JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "2", "PYTHONPATH": str(SOURCE)}
    try:
        done = subprocess.run(
            [sys.executable, str(HERE / "misuse_calls.py"), str(folder)],
            env=environment(backend) | own,
            capture_output=True,
            text=True,
            timeout=SECONDS * 2,
        )
    except subprocess.TimeoutExpired:
        outcome.add(f"misuse on {backend}", "it hangs")
        return
    for line in done.stdout.splitlines():
        if line.startswith("TRIED "):
            what, problem = json.loads(line[6:])
            outcome.add(f"{what} on {backend}", problem)
    if "DONE" not in done.stdout:
        outcome.add(f"misuse on {backend}", f"the process ended: {done.stderr[-500:]}")
