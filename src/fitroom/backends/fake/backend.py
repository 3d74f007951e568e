"""A scripted backend behind the contract, for tests of logic that needs no framework."""

import gc
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fitroom.backends.contract import Device, Distributing, FusedLayer, MemoryReading, Name
from fitroom.backends.fake import device as memory
from fitroom.backends.fake import out_of_memory
from fitroom.backends.fake.stepper import FakeStepper
from fitroom.backends.fake.trace import SMALL_STEP, trace_step
from fitroom.distribution.selection import DeviceSelection
from fitroom.errors import BackendError
from fitroom.memory.step import StepRequest, TracedStep
from fitroom.memory.timeline import Timeline
from fitroom.recipe import Remat


class FakeBackend:
    """One fake card with a capacity, and a step that is written down instead of traced.

    >>> backend = FakeBackend(capacity_bytes=1000)
    >>> block = backend.allocate(600)
    >>> try:
    ...     backend.allocate(600)
    ... except RuntimeError as error:
    ...     backend.is_out_of_memory(error)
    True
    """

    name: Name = "fake"
    can_reset_peak: bool = True
    can_trace: bool = True

    def __init__(self, *, capacity_bytes: int = 2**30, timeline: Timeline = SMALL_STEP) -> None:
        self._timeline = timeline
        self._gpu_memory = memory.FakeMemory(capacity_bytes=capacity_bytes)

    def allocate(self, size_bytes: int) -> int:
        """Take bytes of the fake card; the answer is for `free`. Raises FakeOutOfMemoryError beyond its capacity."""
        return self._gpu_memory.allocate(size_bytes)

    def free(self, block: int) -> None:
        """Free what `allocate` gave."""
        self._gpu_memory.free(block)

    def devices(self) -> tuple[Device, ...]:
        """The fake card, then a CPU that counts nothing, as PyTorch's and JAX's do."""
        return (memory.GPU, memory.CPU)

    def read_memory(self, device: Device, *, wait: bool = True) -> MemoryReading:
        """The counters of the fake card, or none of the CPU."""
        return self._gpu_memory.read() if device == memory.GPU else memory.UNCOUNTED

    def reset_peak(self, device: Device, *, wait: bool = True) -> None:
        """Start the fake card's peak anew from what is in use."""
        if device == memory.GPU:
            self._gpu_memory.reset_peak()

    def release(self) -> None:
        """Collect Python's cycles, then give back what is reserved and not in use."""
        gc.collect()
        self._gpu_memory.release()

    def live_arrays(self) -> list[tuple[Any, int]]:
        """None: blocks of the fake card are numbers."""
        return []

    def count_programs(self) -> dict[tuple[int, str], int]:
        """By `id` and name of each function that is traced or compiled: how many versions are kept."""
        return {}

    def begin_round(self) -> Callable[[], tuple[str, ...]]:
        """The end of a round is a release."""

        def end_round() -> tuple[str, ...]:
            self.release()
            return ()

        return end_round

    def fail_at_once(self) -> str | None:
        """Nothing to do: the fake card never waits for memory."""
        return None

    def keep_programs(self, folder: Path) -> None:
        """Nothing to do: the fake backend compiles nothing."""

    def is_out_of_memory(self, error: BaseException) -> bool:
        """Whether the fake card ran out of memory."""
        return out_of_memory.is_out_of_memory(error)

    def trace(self, model: Any, request: StepRequest) -> TracedStep:
        """The scripted step at the request's batch size; the model is not looked at."""
        return trace_step(self._timeline, request, capacity_bytes=self._gpu_memory.capacity_bytes)

    def distribute(
        self, selection: DeviceSelection, weights: Sequence[float] | None, *, shard_weights: bool = False
    ) -> Distributing:
        """Always raises BackendError: there is one fake card."""
        raise BackendError("The fake backend has one card.", hint="leave the devices out")

    def list_fused(self, model: Any, *, jit: bool | None = None) -> tuple[FusedLayer, ...]:
        """None."""
        return ()

    def stepper(
        self,
        model: Any,
        *,
        jit: bool | None,
        remat: str | Remat | None = None,
        kernels: str | None = None,
        attention_dropout: str | None = None,
    ) -> FakeStepper:
        """Steps that take the fake card's memory; the model is not looked at."""
        return FakeStepper(self._gpu_memory, remat=remat)
