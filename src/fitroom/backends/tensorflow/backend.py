"""TensorFlow behind the contract."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fitroom.backends.contract import Device, Distributing, FusedLayer, MemoryReading, Name, Stepper
from fitroom.backends.tensorflow import device as memory
from fitroom.backends.tensorflow import out_of_memory, rounds
from fitroom.distribution.selection import DeviceSelection
from fitroom.memory.step import StepRequest, TracedStep
from fitroom.recipe import Remat


class TensorFlowBackend:
    """TensorFlow, seen from the rest of fitroom."""

    name: Name = "tensorflow"
    can_reset_peak: bool = True
    can_trace: bool = True

    def devices(self) -> tuple[Device, ...]:
        """The devices TensorFlow sees, the one it would train on first."""
        return memory.devices()

    def read_memory(self, device: Device, *, wait: bool = True) -> MemoryReading:
        """The allocator's counters now, after pending work is done."""
        return memory.read_memory(device, wait=wait)

    def reset_peak(self, device: Device, *, wait: bool = True) -> None:
        """Start the peak anew from what is in use."""
        memory.reset_peak(device, wait=wait)

    def release(self) -> None:
        """Give back what is cached and referenced by nothing; see `memory.release` for what stays."""
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
        """In place of TensorFlow's waiting, on a card."""
        from fitroom.backends.tensorflow.allocator import fail_at_once

        return fail_at_once()

    def keep_programs(self, folder: Path) -> None:
        """TensorFlow keeps no programs on disk."""

    def is_out_of_memory(self, error: BaseException) -> bool:
        """Whether the device ran out of memory: by the error's class first, by its text second."""
        return out_of_memory.is_out_of_memory(error)

    def trace(self, model: Any, request: StepRequest) -> TracedStep:
        """The step's memory, in graph mode or jitted, without running it."""
        from fitroom.backends.tensorflow.trace.estimate import trace_step

        return trace_step(model, request)

    def distribute(
        self, selection: DeviceSelection, weights: Sequence[float] | None, *, shard_weights: bool = False
    ) -> Distributing:
        """Several devices by `tf.distribute.MirroredStrategy`, within one process."""
        from fitroom.backends.tensorflow.train.distribute import distribute

        return distribute(selection, weights, shard_weights=shard_weights)

    def list_fused(self, model: Any, *, jit: bool | None = None) -> tuple[FusedLayer, ...]:
        """List the layers that fused operations concern in graph mode. In a jitted step XLA fuses operations itself."""
        from fitroom.backends.tensorflow.jit import is_jitted_on_card
        from fitroom.backends.tensorflow.kernels.serve import find_served

        if is_jitted_on_card(model) if jit is None else jit:
            return ()
        return tuple(each.described() for each in find_served(model))

    def stepper(
        self,
        model: Any,
        *,
        jit: bool | None,
        remat: str | Remat | None = None,
        kernels: str | None = None,
        attention_dropout: str | None = None,
    ) -> Stepper:
        """Steps of a compiled model, in graph mode or jitted."""
        from fitroom.backends.tensorflow.allocator import take_one_region
        from fitroom.backends.tensorflow.train.distribute import move_to_strategy
        from fitroom.backends.tensorflow.train.stepper import cached_stepper

        take_one_region()
        move_to_strategy(model)
        return cached_stepper(model, jit=jit, remat=remat, kernels=kernels)
