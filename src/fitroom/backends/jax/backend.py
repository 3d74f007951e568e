"""The JAX backend: JAX behind the contract of `backends/contract.py`."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fitroom.backends.contract import Device, Distributing, FusedLayer, MemoryReading, Name, Stepper
from fitroom.backends.jax import device as memory
from fitroom.backends.jax import out_of_memory, rounds
from fitroom.distribution.selection import DeviceSelection
from fitroom.memory.step import PendingStep, StepRequest, TracedStep
from fitroom.recipe import Remat


class JaxBackend:
    """JAX, seen from the rest of fitroom."""

    name: Name = "jax"
    can_reset_peak: bool = False
    can_trace: bool = True

    def devices(self) -> tuple[Device, ...]:
        """The devices JAX sees, the one it would train on first."""
        return memory.devices()

    def read_memory(self, device: Device, *, wait: bool = True) -> MemoryReading:
        """The allocator's counters now, after pending work is done."""
        return memory.read_memory(device, wait=wait)

    def reset_peak(self, device: Device, *, wait: bool = True) -> None:
        """Raises BackendError: a peak on JAX is the process's."""
        memory.reset_peak(device)

    def release(self) -> None:
        """Give back what is cached and referenced by nothing; see `device.release` for what stays."""
        memory.release()

    def live_arrays(self) -> list[tuple[Any, int]]:
        """The arrays that Python can reach and the bytes of each."""
        return rounds.live_arrays()

    def count_programs(self) -> dict[tuple[int, str], int]:
        """By `id` and name of each function that is traced or compiled: how many versions are kept."""
        return rounds.count_programs()

    def begin_round(self) -> Callable[[], tuple[str, ...]]:
        """Note what is there before a round of a loop; the function that comes back ends the round."""
        return rounds.begin_round()

    def fail_at_once(self) -> str | None:
        """Nothing to do: JAX fails at once by itself."""
        return None

    def keep_programs(self, folder: Path) -> None:
        """Keep what XLA compiled for a card in a folder."""
        from fitroom.backends.jax.train.programs import keep_programs

        keep_programs(folder)

    def is_out_of_memory(self, error: BaseException) -> bool:
        """Whether the device ran out of memory: by the error's class first, by its text second."""
        return out_of_memory.is_out_of_memory(error)

    def trace(self, model: Any, request: StepRequest) -> TracedStep:
        """The step's memory as the XLA compiler lays it out, without running it."""
        from fitroom.backends.jax.trace.estimate import trace_step

        return trace_step(model, request)

    def begin_trace(self, model: Any, request: StepRequest) -> PendingStep:
        """Trace a step and have it compiled in another process."""
        from fitroom.backends.jax.trace.estimate import begin_trace

        return begin_trace(model, request)

    def distribute(
        self, selection: DeviceSelection, weights: Sequence[float] | None, *, shard_weights: bool = False
    ) -> Distributing:
        """Several devices by `keras.distribution`, within one process."""
        from fitroom.backends.jax.train.distribute import distribute

        return distribute(selection, weights, shard_weights=shard_weights)

    def list_fused(self, model: Any, *, jit: bool | None = None) -> tuple[FusedLayer, ...]:
        """None: XLA fuses operations by itself."""
        return ()

    def stepper(
        self,
        model: Any,
        *,
        jit: bool | None,
        remat: str | Remat | None = None,
        kernels: str | None = None,
        attention_dropout: str | None = None,
    ) -> Stepper:
        """Steps of a compiled model, each one call of one compiled program."""
        from fitroom.backends.jax.train.stepper import JaxStepper

        return JaxStepper(model, jit=jit, remat=remat)
