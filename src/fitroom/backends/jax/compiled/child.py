"""Run as a process of its own: compile an exported step for a card that is not there.

    python -m fitroom.backends.jax.compiled.child STEP TARGET DUMP_FOLDER

The compiler may crash on an odd target or be killed for its memory; whoever started this process lives on.
It leaves as soon as buffer assignment is written: code generation, which would follow, takes longest and
changes nothing about memory.
"""

import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

import jax
from jax.experimental import topologies

from fitroom.backends.jax.compiled.dump import dumped_bytes

COMPILER_OPTIONS = {
    "xla_gpu_autotune_level": 0,  # there is no GPU to time kernels on
    "xla_backend_optimization_level": 0,
    "xla_dump_hlo_as_text": True,
}
_POLL_SECONDS = 0.05
_STILL_POLLS = 3


def main(step_file: Path, target_file: Path, dump_folder: Path) -> None:
    """Compile until the dump is complete, then leave."""
    compiler = threading.Thread(target=_compile, args=(step_file, target_file, dump_folder), daemon=True)
    compiler.start()
    seen: list[int | None] = []
    parent = os.getppid()
    while compiler.is_alive() and not _stands_still(seen):
        if os.getppid() != parent:
            os._exit(1)  # nobody is left to read the answer
        time.sleep(_POLL_SECONDS)
        seen.append(dumped_bytes(dump_folder))
    sys.stderr.flush()
    os._exit(0 if dumped_bytes(dump_folder) else 1)


def _stands_still(seen: list[int | None]) -> bool:
    last = seen[-_STILL_POLLS:]
    return len(last) == _STILL_POLLS and None not in last and len(set(last)) == 1


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
    lowered.compile(compiler_options={**COMPILER_OPTIONS, "xla_dump_to": str(dump_folder)})


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
