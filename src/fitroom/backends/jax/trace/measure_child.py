"""Run as a process of its own: run an exported step on the card in this machine and read the allocator.

    python -m fitroom.backends.jax.trace.measure_child STEP [DUMP_FOLDER]

Prints the peak in bytes. JAX cannot reset a peak, and the first compile leaves its autotuning in it; so this is run
twice with one compilation cache, first with a dump folder, and the second run's peak is that of a steady step.
"""

import sys
from pathlib import Path

import jax
import jax.numpy as jnp

from fitroom.backends.jax.trace.compiler_child import jitted_step

STEPS = 4


def main(step_file: Path, dump_folder: Path | None = None) -> None:
    """Compile, train a few steps on zeros, print the allocator's peak."""
    device = jax.devices("cuda")[0]
    jitted, specs = jitted_step(step_file, device)
    options = {"xla_dump_to": str(dump_folder), "xla_dump_hlo_as_text": True} if dump_folder else {}
    compiled = jitted.trace(*specs).lower().compile(compiler_options=options)
    state, batch = jax.tree.map(lambda spec: jnp.zeros(spec.shape, spec.dtype, device=device), specs)
    for _ in range(STEPS):
        _, state = compiled(state, batch)
    jax.block_until_ready(state)
    print(device.memory_stats()["peak_bytes_in_use"])


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
