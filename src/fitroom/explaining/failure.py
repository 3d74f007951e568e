"""A failure found in a log: what ran out of memory, where, and the sizes that the framework printed."""

from dataclasses import dataclass, fields
from typing import Any, Literal

Kind = Literal[
    "device_out_of_memory",
    "host_out_of_memory",
    "killed",
    "library_out_of_memory",
    "shared_memory",
]
"""device: an accelerator's memory. host: main memory. killed: a process was killed and the reason is not stated, host
memory being the usual one. library: cuDNN or cuBLAS could not start or found no algorithm, memory being the usual
reason. shared_memory: /dev/shm, through which worker processes hand over batches."""

Framework = Literal["tensorflow", "jax", "torch", "numpy", "python", "system"]
DeviceKind = Literal["gpu", "tpu", "mps", "host"]
Phase = Literal["forward", "backward", "update", "autotuning", "building", "input"]


@dataclass(frozen=True, kw_only=True)
class ProcessMemory:
    """What a process holds on the device, as the framework printed it."""

    pid: int | None
    """None: the process that failed."""

    bytes: int


@dataclass(kw_only=True)
class Failure:
    """One failure in a log. None is unknown: nothing is filled in that the text does not show."""

    kind: Kind
    framework: Framework | None = None
    device: DeviceKind | None = None
    device_index: int | None = None
    card_name: str | None = None
    """The name of the card, where the log says which it is."""

    requested_bytes: int | None = None
    """The allocation that failed."""

    is_rounded: bool = False
    """Whether `requested_bytes` was printed in a rounded unit, such as "1.17 GiB"."""

    shape: tuple[int, ...] | None = None
    dtype: str | None = None
    total_bytes: int | None = None
    """What the device has."""

    in_use_bytes: int | None = None
    """What the framework's allocator had in use."""

    reserved_bytes: int | None = None
    """What the framework had taken from the device, in use or kept for later."""

    free_bytes: int | None = None
    limit_bytes: int | None = None
    """The most that the framework's allocator may take."""

    needed_bytes: int | None = None
    """What a compiled program needs as a whole, where the compiler printed it."""

    refused_bytes: tuple[int, ...] = ()
    """What the driver refused the framework's allocator, in order; it tries again with less each time."""

    processes: tuple[ProcessMemory, ...] = ()
    """Processes with memory on the device, where they were listed."""

    layer: str | None = None
    operation: str | None = None
    phase: Phase | None = None
    line_number: int = 0
    """The line of the log that says it, from 1; 0 where there is no log."""

    quote: str = ""
    """That line, shortened."""

    is_hint_only: bool = False
    """Whether the line is a message on the way, such as a refused preallocation, and not the error itself."""

    count: int = 1
    """How many failures of this kind the log has."""

    @property
    def other_bytes(self) -> int | None:
        """What processes other than this one hold on the device, as far as the text shows; None where it does not."""
        others = [process.bytes for process in self.processes if process.pid is not None]
        if others:
            return sum(others)
        if None in (self.total_bytes, self.free_bytes, self.reserved_bytes):
            return None
        return max(0, (self.total_bytes or 0) - (self.free_bytes or 0) - (self.reserved_bytes or 0))

    @property
    def is_of_step(self) -> bool:
        """Whether a tensor of a training step did not fit, on whatever device it ran."""
        return self.framework in ("tensorflow", "jax", "torch") and self.phase in ("forward", "backward", "update")

    def merge(self, other: "Failure") -> None:
        """Take from another line about the same failure what this one does not say."""
        is_exacter = other.requested_bytes is not None and self.is_rounded and not other.is_rounded
        if self.requested_bytes is None or is_exacter:
            self.requested_bytes, self.is_rounded = other.requested_bytes, other.is_rounded
        self.refused_bytes += other.refused_bytes if self.refused_bytes != other.refused_bytes else ()
        for name in _MERGED:
            if getattr(self, name) in (None, ()):
                setattr(self, name, getattr(other, name))
        if _STRENGTH[other.kind] > _STRENGTH[self.kind] and not other.is_hint_only:
            self.kind, self.quote, self.line_number = other.kind, other.quote, other.line_number
        if self.kind == "device_out_of_memory" and self.device == "host":  # one line says what failed, another where
            self.kind = "host_out_of_memory"

    def to_dict(self) -> dict[str, Any]:
        """As plain values, for JSON."""
        plain = {each.name: getattr(self, each.name) for each in fields(self) if each.name != "is_hint_only"}
        return plain | {
            "shape": None if self.shape is None else list(self.shape),
            "refused_bytes": list(self.refused_bytes),
            "processes": [vars(process) for process in self.processes],
        }


_STRENGTH: dict[Kind, int] = {
    "killed": 0,
    "library_out_of_memory": 1,
    "host_out_of_memory": 2,
    "shared_memory": 3,
    "device_out_of_memory": 4,
}
"""Of two messages about one failure, the one that is more specific gives the kind."""

_MERGED = tuple(
    each.name
    for each in fields(Failure)
    if each.name not in ("kind", "is_rounded", "line_number", "quote", "is_hint_only", "count", "refused_bytes")
)
