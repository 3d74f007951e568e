"""What flows along the edges of a graph while it is replayed: buffers of the card, lists of them, numbers."""

from dataclasses import dataclass, field
from typing import Any

from fitroom.backends.tensorflow.trace.graph.program import Output
from fitroom.memory.allocators.best_fit import BestFitAllocator


@dataclass(slots=True, eq=False)
class Held:
    """A chunk of the allocator and how many hold it."""

    address: int
    asked_bytes: int
    size_bytes: int
    """Of the whole chunk."""

    source: int | None
    """The operation that asked for it; None for a variable."""

    is_scratch: bool
    first: int
    """The moment at which it was asked for."""

    num_holders: int = 1
    variable: str | None = None


@dataclass(slots=True, eq=False)
class TensorList:
    """TensorFlow's list of tensors, as loops collect them."""

    items: "list[Value | None]" = field(default_factory=list)
    num_holders: int = 1


@dataclass(slots=True)
class Value:
    """One tensor: its memory, if it has any, and what is known of it."""

    output: Output
    memory: "Held | TensorList | None" = None
    number: Any = None
    variable: str | None = None
    """The variable that a handle is for."""


class Holdings:
    """All chunks that are held, and when each came and went."""

    def __init__(self, allocator: BestFitAllocator) -> None:
        self.allocator = allocator
        self.moment = 0
        self.gone: list[tuple[Held, int]] = []
        """Chunks that were given back, with the last moment at which they were held."""

        self.live: dict[int, Held] = {}

    def take(self, size_bytes: int, source: int | None, *, is_scratch: bool = False) -> Held:
        """A chunk with one holder."""
        address = self.allocator.allocate(size_bytes)
        held = Held(address, size_bytes, self.allocator.size_of(address), source, is_scratch, self.moment)
        self.live[address] = held
        return held

    def hold(self, memory: Held | TensorList | None) -> None:
        """One holder more."""
        if memory is not None:
            memory.num_holders += 1

    def release(self, memory: Held | TensorList | None) -> None:
        """One holder less; what nobody holds is given back."""
        if memory is None:
            return
        memory.num_holders -= 1
        if memory.num_holders:
            return
        if isinstance(memory, TensorList):
            for item in memory.items:
                if item is not None:
                    self.release(item.memory)
            return
        self.allocator.free(memory.address)
        del self.live[memory.address]
        self.gone.append((memory, self.moment))
