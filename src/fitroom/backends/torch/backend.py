"""The PyTorch backend: PyTorch behind the contract of `backends/contract.py`."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fitroom.backends.contract import Device, Distributing, FusedLayer, MemoryReading, Name
from fitroom.backends.torch import device as memory
from fitroom.backends.torch import out_of_memory, rounds
from fitroom.distribution.selection import DeviceSelection
from fitroom.memory.step import StepRequest, TracedStep
from fitroom.recipe import Remat

if TYPE_CHECKING:
    from fitroom.backends.torch.train.stepper import TorchStepper


class TorchBackend:
    """PyTorch, seen from the rest of fitroom."""

    name: Name = "torch"
    can_reset_peak: bool = True
    can_trace: bool = True

    def devices(self) -> tuple[Device, ...]:
        """The devices PyTorch sees, the one it would train on first."""
        return memory.devices()

    def read_memory(self, device: Device, *, wait: bool = True) -> MemoryReading:
        """The allocator's counters now, after pending work is done."""
        return memory.read_memory(device, wait=wait)

    def reset_peak(self, device: Device, *, wait: bool = True) -> None:
        """Start the peak anew from what is in use."""
        memory.reset_peak(device, wait=wait)

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
        """Nothing to do: PyTorch fails at once by itself."""
        return None

    def keep_programs(self, folder: Path) -> None:
        """PyTorch compiles nothing here."""

    def is_out_of_memory(self, error: BaseException) -> bool:
        """Whether the device ran out of memory: by the error's class first, by its text second."""
        return out_of_memory.is_out_of_memory(error)

    def trace(self, model: Any, request: StepRequest) -> TracedStep:
        """The step's memory as fake tensors and a model of the caching allocator show it, without running it."""
        from fitroom.backends.torch.trace.estimate import trace_step

        return trace_step(model, request)

    def distribute(
        self, selection: DeviceSelection, weights: Sequence[float] | None, *, shard_weights: bool = False
    ) -> Distributing:
        """Several devices by `DistributedDataParallel`, each in a process of its own."""
        from fitroom.backends.torch.train.distribute import distribute

        return distribute(selection, weights, shard_weights=shard_weights)

    def list_fused(self, model: Any, *, jit: bool | None = None) -> tuple[FusedLayer, ...]:
        """List the layers that fused operations concern."""
        from fitroom.backends.torch.kernels.serve import find_served

        return tuple(each.described() for each in find_served(model))

    def stepper(
        self,
        model: Any,
        *,
        jit: bool | None,
        remat: str | Remat | None = None,
        kernels: str | None = None,
        attention_dropout: str | None = None,
    ) -> "TorchStepper":
        """Steps of a compiled model. They are eager, whatever `jit` says."""
        from fitroom.backends.torch.train.stepper import TorchStepper

        return TorchStepper(model, remat=remat, kernels=kernels, attention_dropout=attention_dropout)
