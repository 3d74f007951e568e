"""Where the peak of a step can be measured: on the card that an estimate is for, or by an allocator that counts."""

import os
import sys

from fitroom.backends.contract import Backend
from fitroom.cards.catalogue import find_card
from fitroom.errors import UnknownNameError


def place_of_estimates(backend: str, gpu: str) -> str:
    """Where steps were measured that may correct an estimate for a card, in this process.

    On a machine without a card, whose TensorFlow has the limited allocator, these are steps on that allocator. They say
    nothing about a card, and steps on a card nothing about them.
    """
    counts_here = os.environ.get("TF_CPU_ALLOCATOR_USE_BFC", "").lower() in ("1", "true")
    if backend == "tensorflow" and counts_here and "tensorflow" in sys.modules:
        import tensorflow as tf

        if not tf.config.list_physical_devices("GPU"):
            return _on_host(gpu)
    return gpu


def place_of_training(backend: Backend, gpu: str) -> str | None:
    """Where a training in this process measures steps that an estimate for a card may be compared with; else None."""
    device = backend.devices()[0]
    if device.kind == "cpu":
        return _on_host(gpu) if backend.read_memory(device).peak_bytes else None
    try:
        return gpu if find_card(device.description or "").name == gpu else None
    except UnknownNameError:
        return None


def _on_host(gpu: str) -> str:
    return f"{gpu}, on the host's allocator"
