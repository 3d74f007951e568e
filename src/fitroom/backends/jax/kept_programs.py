"""Compiled programs on disk: XLA takes a minute for a large step, and the next process need not wait for it again."""

from pathlib import Path

import jax

MOST_BYTES = 4 * 2**30
"""What has not been used for the longest time goes first."""


def keep_programs(folder: Path) -> None:
    """Have JAX keep what it compiles for a card, unless it was told where to or there is none.

    For a CPU it would keep what another machine, sharing the folder, may not be able to run.
    """
    if jax.default_backend() == "cpu" or jax.config.jax_compilation_cache_dir:
        return
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_compilation_cache_max_size", MOST_BYTES)
