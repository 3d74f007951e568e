"""Run as a process of its own: compile an exported step for a card that is not there.

    python -m fitroom.backends.jax.trace.compiler_child STEP TARGET DUMP_FOLDER

The compiler may crash on an odd target or be killed for its memory; whoever started this process lives on.
"""

import sys
from functools import partial
from pathlib import Path
from typing import Any

import jax
from jax.experimental import topologies

from fitroom.backends.xla.compile import compile_without_card, leave_when_dumped


def jitted_step(step_file: Path, device: Any) -> tuple[Any, Any]:
    """The exported step as Keras jits it, and its arguments on the device, as `jax.ShapeDtypeStruct`s."""
    step = jax.export.deserialize(bytearray(step_file.read_bytes()))
    sharding = jax.sharding.SingleDeviceSharding(device)
    specs = [jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=sharding) for a in step.in_avals]
    arguments, _ = jax.tree.unflatten(step.in_tree, specs)
    return jax.jit(step.call, donate_argnums=0, keep_unused=True), arguments


def _compile(step_file: Path, target_file: Path, dump_folder: Path) -> None:
    target = target_file.read_text()
    card = topologies.get_topology_desc(platform="cuda", target_config=target, topology="1x1x1").devices[0]
    jitted, specs = jitted_step(step_file, card)
    lowered = jitted.trace(*specs).lower(lowering_platforms=("cuda",))
    compile_without_card(lambda options: lowered.compile(compiler_options=options), dump_folder)


if __name__ == "__main__":
    step_file, target_file, dump_folder = map(Path, sys.argv[1:])
    leave_when_dumped(partial(_compile, step_file, target_file), dump_folder)
