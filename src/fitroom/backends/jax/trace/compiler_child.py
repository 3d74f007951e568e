"""Run as a process of its own: compile an exported step for a card that is not there.

    python -m fitroom.backends.jax.trace.compiler_child STEP TARGET DUMP_FOLDER DEVICES replicated|sharded

The compiler may crash on an odd target or be killed for its memory; whoever started this process lives on.
"""

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.experimental import topologies
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from fitroom.backends.jax.shards import largest_axis
from fitroom.backends.xla.compile import compile_without_card, leave_when_dumped


def jitted_step(step_file: Path, device: Any) -> tuple[Any, Any]:
    """The exported step as Keras jits it, and its arguments on the device, as `jax.ShapeDtypeStruct`s."""
    step = jax.export.deserialize(bytearray(step_file.read_bytes()))
    sharding = jax.sharding.SingleDeviceSharding(device)
    specs = [jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=sharding) for a in step.in_avals]
    arguments, _ = jax.tree.unflatten(step.in_tree, specs)
    return jax.jit(step.call, donate_argnums=0, keep_unused=True), arguments


def spread_step(step_file: Path, devices: Sequence[Any], *, shard_weights: bool) -> tuple[Any, Any]:
    """The exported step for several devices: its batch shared out, its state replicated or divided."""
    step = jax.export.deserialize(bytearray(step_file.read_bytes()))
    mesh = Mesh(np.array(devices), ("batch",))
    (state, data), _ = jax.tree.unflatten(step.in_tree, list(step.in_avals))

    def placed(array: Any, spec: PartitionSpec) -> Any:
        return jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=NamedSharding(mesh, spec))

    def of_state(array: Any) -> PartitionSpec:
        axis = largest_axis(array.shape, len(devices)) if shard_weights else None
        return PartitionSpec() if axis is None else PartitionSpec(*[None] * axis, "batch")

    state = jax.tree.map(lambda array: placed(array, of_state(array)), state)
    data = jax.tree.map(lambda array: placed(array, PartitionSpec("batch")), data)
    new_state = jax.tree.map(lambda array: array.sharding, state)
    replicated = NamedSharding(mesh, PartitionSpec())
    jitted = jax.jit(step.call, donate_argnums=0, keep_unused=True, out_shardings=(replicated, new_state))
    return jitted, (state, data)


def _compile(step_file: Path, target_file: Path, devices: int, shard_weights: bool, dump_folder: Path) -> None:
    target = target_file.read_text()
    cards = topologies.get_topology_desc(platform="cuda", target_config=target, topology=f"1x1x{devices}").devices
    if devices > 1:
        jitted, specs = spread_step(step_file, cards, shard_weights=shard_weights)
    else:
        jitted, specs = jitted_step(step_file, cards[0])
    lowered = jitted.trace(*specs).lower(lowering_platforms=("cuda",))
    compile_without_card(lambda options: lowered.compile(compiler_options=options), dump_folder)


if __name__ == "__main__":
    step_file, target_file, dump_folder = map(Path, sys.argv[1:4])
    leave_when_dumped(
        partial(_compile, step_file, target_file, int(sys.argv[4]), sys.argv[5] == "sharded"), dump_folder
    )
