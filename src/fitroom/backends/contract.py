"""What every backend offers. The rest of fitroom speaks to frameworks through this alone.

A backend is a package beside this file, named as Keras names it, with the same files in each:
`backend.py` (the class), `memory.py` (devices and readings), `out_of_memory.py` (recognising it).
A capability that a framework lacks is a flag here, not a surprise at run time.
"""

from dataclasses import dataclass
from typing import Any, Literal, Protocol

from fitroom.estimating.step import StepRequest, TracedStep

Name = Literal["tensorflow", "jax", "torch", "fake"]


@dataclass(frozen=True, kw_only=True)
class Device:
    """One device that the framework sees."""

    name: str
    """As fitroom names it on every backend: "gpu:0", "cpu:0"."""

    kind: Literal["gpu", "cpu", "other"]
    description: str | None
    """The card's name, or None where the framework does not tell."""


@dataclass(frozen=True, kw_only=True)
class MemoryReading:
    """The framework's own allocator counters for one device. None where it does not count."""

    in_use_bytes: int | None
    """Held by live tensors now."""

    peak_bytes: int | None
    """The most that was in use since the start or the last reset."""

    reserved_bytes: int | None
    """Taken from the device, in use or kept for later."""

    limit_bytes: int | None
    """The most the allocator may take."""


class Backend(Protocol):
    """One framework, seen from the rest of fitroom."""

    name: Name
    can_reset_peak: bool
    """Whether `reset_peak` works; where not, a peak is the process's."""

    can_trace: bool
    """Whether `trace` works in this version of fitroom."""

    def devices(self) -> tuple[Device, ...]:
        """The devices the framework sees, the one it would train on first."""

    def read_memory(self, device: Device) -> MemoryReading:
        """The allocator's counters now, after pending work is done."""

    def reset_peak(self, device: Device) -> None:
        """Start the peak anew from what is in use. Raises BackendError where `can_reset_peak` is false."""

    def release(self) -> None:
        """Give back what is cached and referenced by nothing: compiled functions, free blocks, cycles."""

    def is_out_of_memory(self, error: BaseException) -> bool:
        """Whether the device ran out of memory: by the error's class first, by its text second."""

    def trace(self, model: Any, request: StepRequest) -> TracedStep:
        """The step's memory without running it. Raises BackendError where `can_trace` is false."""
