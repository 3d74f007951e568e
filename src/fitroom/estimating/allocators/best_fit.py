"""TensorFlow's allocator of device memory: best fit with coalescing (BFC).

It takes one region of the card and cuts it into chunks. A request gets the smallest free chunk that holds it, of
several the one at the lowest address; the rest of the chunk is cut off only where it is worth it. A free chunk joins
its free neighbours. What is in use counts whole chunks, so it depends on the order of requests.
"""

from bisect import bisect_left, insort
from dataclasses import dataclass, field

ALIGNMENT_BYTES = 256
"""Requests are rounded up to a multiple of this."""

MOST_WASTE_BYTES = 128 * 2**20
"""A chunk is not cut for a request of more than half of it, unless this much would be wasted."""


class DoesNotFit(MemoryError):
    """No free chunk holds the request."""


@dataclass
class BestFitAllocator:
    """The chunks of one region, by address.

    >>> allocator = BestFitAllocator(limit_bytes=4096)
    >>> first, second = allocator.allocate(1000), allocator.allocate(300)
    >>> allocator.in_use_bytes
    1536
    >>> allocator.free(first)
    >>> allocator.allocate(700) == first    # more than half of the chunk: it is taken whole
    True
    >>> allocator.in_use_bytes
    1536
    """

    limit_bytes: int
    in_use_bytes: int = 0
    peak_bytes: int = 0
    """The most that was in use; set it to `in_use_bytes` to start anew."""

    _size: dict[int, int] = field(init=False, repr=False)
    _before: dict[int, int | None] = field(init=False, repr=False)
    _after: dict[int, int | None] = field(init=False, repr=False)
    _free: list[tuple[int, int]] = field(init=False, repr=False)
    """Size and address of each free chunk, in order."""

    _is_free: set[int] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.limit_bytes -= self.limit_bytes % ALIGNMENT_BYTES
        self._size = {0: self.limit_bytes}
        self._before, self._after = {0: None}, {0: None}
        self._free, self._is_free = [(self.limit_bytes, 0)], {0}

    def allocate(self, size_bytes: int) -> int:
        """The address of a chunk for the request. Raises DoesNotFit."""
        wanted = rounded(size_bytes)
        at = bisect_left(self._free, (wanted, -1))
        if at == len(self._free):
            raise DoesNotFit(f"{wanted} bytes; in use: {self.in_use_bytes} of {self.limit_bytes}")
        size, address = self._free.pop(at)
        self._is_free.discard(address)
        if size >= 2 * wanted or size - wanted >= MOST_WASTE_BYTES:
            self._cut(address, wanted)
        self.in_use_bytes += self._size[address]
        self.peak_bytes = max(self.peak_bytes, self.in_use_bytes)
        return address

    def free(self, address: int) -> None:
        """Give a chunk back."""
        self.in_use_bytes -= self._size[address]
        after = self._after[address]
        if after in self._is_free:
            self._join(address, after)
        before = self._before[address]
        if before in self._is_free:
            self._join(before, address)
            address = before
        insort(self._free, (self._size[address], address))
        self._is_free.add(address)

    def size_of(self, address: int) -> int:
        """The bytes of a chunk, which is what it counts for."""
        return self._size[address]

    @property
    def largest_free_bytes(self) -> int:
        """The largest request that would be granted."""
        return self._free[-1][0] if self._free else 0

    def _cut(self, address: int, size_bytes: int) -> None:
        rest = address + size_bytes
        self._size[rest] = self._size[address] - size_bytes
        self._size[address] = size_bytes
        after = self._after[address]
        self._after[address], self._before[rest], self._after[rest] = rest, address, after
        if after is not None:
            self._before[after] = rest
        insort(self._free, (self._size[rest], rest))
        self._is_free.add(rest)

    def _join(self, address: int, after: int) -> None:
        """Make one chunk of two neighbours, of which neither stays in the list of free ones."""
        for part in (address, after):
            if part in self._is_free:
                self._free.pop(bisect_left(self._free, (self._size[part], part)))
                self._is_free.discard(part)
        self._size[address] += self._size.pop(after)
        beyond = self._after.pop(after)
        del self._before[after]
        self._after[address] = beyond
        if beyond is not None:
            self._before[beyond] = address


def rounded(size_bytes: int) -> int:
    """What a request is rounded up to."""
    return max(ALIGNMENT_BYTES, -(-size_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES)
