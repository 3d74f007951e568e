"""What fitroom does, on any machine: no GPU is needed.

    python examples/demo.py

First: what training Xception takes on cards that are not here, and on each backend. Then: a script that dies of memory,
for real, in TensorFlow's own allocator on the CPU; and the same script under `fitroom run`.
"""

import logging
import os
import subprocess
import sys
from pathlib import Path

os.environ |= {"KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "3"}

from rich.console import Console
from rich.table import Table

import fitroom
from fitroom.models.source import ModelSource, load_model
from fitroom.units import format_bytes

CARDS = ("T4", "RTX 3060", "RTX 4090", "A100 40GB", "H200")
BATCH_SIZE = 64
LIMITS_MB = (800, 300)


def main() -> None:
    """Estimates, then the proof."""
    logging.getLogger("jax_plugins").setLevel(logging.ERROR)  # it misses a GPU, which is not needed here
    console = Console()
    console.rule(f"Xception, 299 x 299 pictures, batch {BATCH_SIZE}, on JAX: does it fit?")
    estimates = estimate_cards(console)
    console.print(estimates[0])
    console.print(cards_table(estimates))
    console.rule("The same step on each backend")
    estimate_backends()
    console.rule("Memory limits are real: a script under two of them")
    for limit_mb in LIMITS_MB:
        train_under_limit(limit_mb)
    console.rule(f"The same script, not a word changed, as `fitroom run`, under {LIMITS_MB[-1]} MB")
    train_under_limit(LIMITS_MB[-1], "-m", "fitroom", "run")


def estimate_cards(console: Console) -> list[fitroom.Estimate]:
    """Xception on each card, compiled for it by XLA's own GPU compiler."""
    model = load_model(ModelSource(text="xception", image_size=299))
    estimates = []
    for card in CARDS:
        console.print(f"compiling the step for {card} ...", style="dim")
        estimates.append(fitroom.estimate(model, BATCH_SIZE, gpu=card))
    return estimates


def estimate_backends() -> None:
    """Xception on JAX, TensorFlow and PyTorch, side by side, as the command line does it."""
    environment = {key: value for key, value in os.environ.items() if key != "KERAS_BACKEND"}
    command = [sys.executable, "-m", "fitroom", "estimate", "xception", "--image-size", "299"]
    subprocess.run([*command, "--batch-size", str(BATCH_SIZE), "--backend", "all", "--gpu", "H200"], env=environment)


def cards_table(estimates: list[fitroom.Estimate]) -> Table:
    """One line a card."""
    table = Table(
        "card", "JAX may take", "the step takes", "needs in all", "verdict", title="The same step on each card"
    )
    for e in estimates:
        sizes = (e.limit_bytes, e.peak_bytes, e.required_bytes)
        table.add_row(e.gpu, *map(format_bytes, sizes), "fits" if e.fits else "does NOT fit")
    return table


def train_under_limit(limit_mb: int, *runner: str) -> None:
    """One epoch in a process whose allocator has a limit."""
    limits = {"TF_CPU_ALLOCATOR_USE_BFC": "true", "TF_CPU_BFC_MEM_LIMIT_IN_MB": str(limit_mb)}
    script = Path(__file__).with_name("limited_memory.py")
    # What TensorFlow says of its own is for people with a problem; what fitroom says is for all.
    finished = subprocess.run(
        [sys.executable, *runner, script], env=os.environ | limits, capture_output=True, text=True, errors="replace"
    )
    for line in finished.stderr.splitlines():
        if line.startswith("fitroom:"):
            print(line)
    print(finished.stdout.strip() or f"limit {limit_mb} MB: ended with exit code {finished.returncode}", flush=True)


if __name__ == "__main__":
    main()
