"""Write the figures of several devices into docs/howto/several_cards.md, from the results.

    python benchmarks/pages/devices_page.py [--check]

With `--check` nothing is written: exit code 1 where the page differs from what the results say.
"""

import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
from pages.page_figures import write_figures

RESULTS = Path(__file__).parents[1] / "results" / "devices.jsonl"
NAMES = {"jax": "JAX", "torch": "PyTorch", "tensorflow": "TensorFlow"}
GIB = 2**30


def figures() -> str:
    """What each card holds by the estimates, what fitroom costs beside the engine alone, and what ran out of memory."""
    lines = [json.loads(line) for line in RESULTS.read_text().splitlines()]
    estimates = {line["devices"]: line for line in lines if line["what"] == "estimate"}
    costs = {line["backend"]: line for line in lines if line["what"] == "overhead"}
    failures = {line["backend"]: line for line in lines if line["what"] == "out of memory on one of two"}
    parts = [estimate_table(estimates), cost_table(costs)]
    if failures:
        parts.append(failure_table(failures))
    return "\n".join(parts)


def estimate_table(found: dict[int, dict[str, Any]]) -> str:
    """A row for each number of cards."""
    rows = [
        f"| {devices} | {line['batch_size']} | {gib(line['peak_bytes'])} | {gib(line['required_bytes'])} | "
        f"{gib(line['device_bytes'])} |"
        for devices, line in sorted(found.items())
    ]
    said = (
        "Xception at 299 pixels with Adam on JAX, 32 samples on each RTX 3090, compiled by XLA for so many cards on a "
        "machine\nwithout any; not measured on cards. In GiB, on each card:\n\n"
    )
    head = (
        "| cards | batch | peak | allocator's limit | free on the card, NCCL included |\n|---:|---:|---:|---:|---:|\n"
    )
    return said + head + "\n".join(rows) + "\n"


def cost_table(found: dict[str, dict[str, Any]]) -> str:
    """A row for each backend."""
    rows = [
        f"| {NAMES[backend]} | {line['by_hand_cpu_seconds'] * 1000:.1f} | {line['fitroom_cpu_seconds'] * 1000:.1f} | "
        f"{line['cpu_ratio']:.2f} |"
        for backend, line in sorted(found.items())
    ]
    said = (
        "A dense model (2.4 million weights, Adam, batch 256) on two CPU devices, seconds of the CPU in milliseconds a "
        "step, the least\nof three runs in turns (PyTorch: of the first of two processes; the machine had other work):"
        "\n\n"
    )
    head = "| engine | by hand | by fitroom | ratio |\n|---|---:|---:|---:|\n"
    return said + head + "\n".join(rows) + "\n"


def failure_table(found: dict[str, dict[str, Any]]) -> str:
    """A row for each backend of which one of two devices of a card ran out of memory."""
    rows = [
        f"| {NAMES[backend]} | {' and '.join(f'{limit:,}' for limit in line['limits_mib'])} MiB | "
        f"{line['out_of_memory']} | {line['micro_batch']} | {line['seconds']:.0f} |"
        for backend, line in sorted(found.items())
    ]
    said = "Real out-of-memory on the second of two devices that one card was divided into:\n\n"
    head = "| engine | limits | times out of memory | micro-batch after it | seconds |\n|---|---|---:|---:|---:|\n"
    return said + head + "\n".join(rows) + "\n"


def gib(size: int) -> str:
    """Bytes as GiB."""
    return f"{size / GIB:.2f}"


if __name__ == "__main__":
    write_figures("howto/several_cards.md", "pages/devices_page.py", figures())
