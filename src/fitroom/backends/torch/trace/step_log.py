"""What a traced program holds on the device, written down operation by operation."""

from dataclasses import dataclass, field

from fitroom.memory.allocators.replay import Requests
from fitroom.memory.timeline import Kind, Moment, Phase


@dataclass(slots=True)
class LoggedBuffer:
    """A piece of memory from its birth to its death."""

    size_bytes: int
    kind: Kind
    layer: str | None
    first: int
    """The moment at which it is made."""

    last: int | None = None
    """The last moment at which it is held, or None while it is."""


@dataclass(slots=True)
class StepLog:
    """The moments and buffers of a program, and the order of their allocations."""

    moments: list[Moment] = field(default_factory=list)
    buffers: list[LoggedBuffer] = field(default_factory=list)
    events: list[int] = field(default_factory=list)
    """A buffer's number where it is allocated, its complement where it is freed."""

    is_collecting: bool = False
    """Whether Python collects garbage just now."""

    collected: set[int] = field(default_factory=set)
    """The buffers that were freed by that."""

    @property
    def now(self) -> int:
        """The number of the moment under way."""
        return len(self.moments) - 1

    def begin(self, name: str, layer: str | None, phase: Phase | None) -> None:
        """Begin the next moment."""
        self.moments.append(Moment(name=name, layer=layer, phase=phase))

    def allocate(self, size_bytes: int, kind: Kind, layer: str | None) -> int:
        """Note a new buffer; the number returned names it."""
        number = len(self.buffers)
        self.buffers.append(LoggedBuffer(size_bytes, kind, layer, self.now))
        self.events.append(number)
        return number

    def free(self, number: int) -> None:
        """Note that a buffer is gone."""
        self.buffers[number].last = self.now
        self.events.append(~number)
        if self.is_collecting:
            self.collected.add(number)

    def requests(self) -> Requests:
        """The allocations and frees of the log, as requests to an allocator."""
        sizes_bytes = [buffer.size_bytes for buffer in self.buffers]
        return Requests(sizes_bytes=sizes_bytes, events=self.events, collected=frozenset(self.collected))
