"""Compiled programs on disk: XLA takes a minute for a large step, and the next process need not wait for it again."""

from pathlib import Path

import jax

MOST_BYTES = 4 * 2**30
"""What has not been used for the longest time goes first."""


def keep_programs(folder: Path) -> None:
    """Have JAX keep what it compiles for a card, unless it was told where to or there is none.

    For a CPU it would keep what another machine, sharing the folder, may not be able to run. Each memory limit has a
    folder of its own: XLA compiles with less memory in mind where there is less, and JAX does not look at that when it
    looks for a program.
    """
    if jax.default_backend() == "cpu" or jax.config.jax_compilation_cache_dir:
        return
    counted = jax.local_devices()[0].memory_stats() or {}
    jax.config.update("jax_compilation_cache_dir", str(folder / str(counted.get("bytes_limit", "any"))))
    jax.config.update("jax_compilation_cache_max_size", MOST_BYTES)
