"""Cards that others use: their share of a batch has less room than the others'."""

from collections.abc import Sequence

from fitroom.cards.nvml import live_gpus
from fitroom.units import format_bytes

BUSY_SHARE = 0.1
"""From this share of its memory on, what others use of a card is worth a word. A desktop takes less."""


def busy_notes(devices: Sequence[str]) -> tuple[str, ...]:
    """A sentence for each of these devices, such as "gpu:1", of which other processes use much."""
    notes = []
    for number, gpu in enumerate(live_gpus()):
        if f"gpu:{number}" in devices and gpu.used_bytes > BUSY_SHARE * gpu.memory_bytes:
            notes.append(
                f"gpu:{number} ({gpu.name}) is busy: others use {format_bytes(gpu.used_bytes)} of "
                f"{format_bytes(gpu.memory_bytes)}, and its share of a batch must fit into the rest. "
                "`fitroom doctor` shows who; --devices with numbers leaves a card out."
            )
    return tuple(notes)
