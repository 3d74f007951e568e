"""What flows along the edges of a graph while it is replayed: buffers of the card, lists of them, numbers."""

from array import array
from dataclasses import dataclass, field
from typing import Any

from fitroom.backends.tensorflow.trace.graph.output import Output
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
    is_dispensable: bool = False
    """Whether the step runs without it where there is no room for it, as without a convolution's workspace."""


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

    def take(
        self, size_bytes: int, source: int | None, *, is_scratch: bool = False, is_dispensable: bool = False
    ) -> Held:
        """A chunk with one holder. `is_dispensable`: the step runs without it, too."""
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
        self.give_back(memory)

    def give_back(self, held: Held) -> None:
        """Free a chunk that nobody holds."""
        self.allocator.free(held.address)
        del self.live[held.address]
        self.gone.append((held, self.moment))


class RecordedHoldings(Holdings):
    """Holdings without an allocator: what is asked for and given back, in order, as any allocator would be asked."""

    def __init__(self) -> None:
        self.moment = 0
        self.chunks: list[Held] = []
        """Every chunk, in the order in which they were asked for."""

        self.events, self.moments = array("q"), array("q")
        """The number of a chunk where it is asked for, its complement where it is given back; and when."""

        self._numbers: dict[Held, int] = {}

    def take(
        self, size_bytes: int, source: int | None, *, is_scratch: bool = False, is_dispensable: bool = False
    ) -> Held:
        """Note that a chunk is asked for."""
        number = len(self.chunks)
        held = Held(number, size_bytes, size_bytes, source, is_scratch, self.moment, is_dispensable=is_dispensable)
        self.chunks.append(held)
        self._numbers[held] = number
        self._note(number)
        return held

    def give_back(self, held: Held) -> None:
        """Note that a chunk is given back."""
        self._note(~self._numbers.pop(held))

    def _note(self, event: int) -> None:
        self.events.append(event)
        self.moments.append(self.moment)
