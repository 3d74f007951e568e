"""A limit for JAX's allocator."""

import os
import sys

from fitroom.cards.nvml import live_gpus
from fitroom.cards.overhead import visible_bytes

_SETTING, _OLDER_SETTING = "XLA_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_MEM_FRACTION"


def limit_memory(limit_bytes: int) -> str | None:
    """Limit the allocator of every card, before JAX starts. Returns why that is impossible, or None."""
    gpus = live_gpus()
    if not gpus:
        return "JAX has no limit for memory on the CPU"
    if "jax" in sys.modules:
        return "JAX has been imported already"
    # With both of them the CUDA plugin does not start, and JAX falls back to the CPU.
    os.environ.pop(_OLDER_SETTING, None)
    fraction = min(1.0, limit_bytes / visible_bytes(gpus[0].memory_bytes))
    os.environ[_SETTING] = f"{fraction:.7f}"
    return None
