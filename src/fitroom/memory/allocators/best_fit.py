"""TensorFlow's allocator of device memory: best fit with coalescing (BFC).

It takes a region of the card and cuts it into chunks: all that it may have at once, or, where it is told to grow, one
more region whenever there is no room, each twice as large as the last. A request gets the smallest free chunk that
holds it, of several the one at the lowest address; the rest of the chunk is cut off only where it is worth it. A free
chunk joins its free neighbours. What is in use counts whole chunks, so it depends on the order of requests.
"""

from bisect import bisect_left, insort
from dataclasses import dataclass, field

ALIGNMENT_BYTES = 256
"""Requests are rounded up to a multiple of this."""

MOST_WASTE_BYTES = 128 * 2**20
"""A chunk is not cut for a request of more than half of it, unless this much would be wasted."""


FIRST_REGION_BYTES = 2 * 2**20
"""The first region of an allocator that grows."""

_REGION_DISTANCE_BYTES = 2**50
"""Between the addresses of two regions: more than any card has, so that none is another's neighbour."""


class DoesNotFitError(MemoryError):
    """No free chunk holds the request."""


@dataclass
class BestFitAllocator:
    """The chunks of its regions, by address.

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
    grows: bool = False
    in_use_bytes: int = 0
    peak_bytes: int = 0
    """The most that was in use; set it to `in_use_bytes` to start anew."""

    _size: dict[int, int] = field(init=False, repr=False)
    _before: dict[int, int | None] = field(init=False, repr=False)
    _after: dict[int, int | None] = field(init=False, repr=False)
    _free: list[tuple[int, int]] = field(init=False, repr=False)
    """Size and address of each free chunk, in order."""

    _is_free: set[int] = field(init=False, repr=False)
    _next_region_bytes: int = field(init=False, repr=False)
    _num_regions: int = field(init=False, repr=False, default=0)
    _left_bytes: int = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.limit_bytes -= self.limit_bytes % ALIGNMENT_BYTES
        self._size, self._before, self._after = {}, {}, {}
        self._free, self._is_free = [], set()
        self._left_bytes = self.limit_bytes
        self._next_region_bytes = min(FIRST_REGION_BYTES, self.limit_bytes) if self.grows else self.limit_bytes

    def allocate(self, size_bytes: int) -> int:
        """The address of a chunk for the request. Raises DoesNotFitError."""
        wanted = round_up(size_bytes)
        at = bisect_left(self._free, (wanted, -1))
        if at == len(self._free) and self._extend(wanted):
            at = bisect_left(self._free, (wanted, -1))
        if at == len(self._free):
            raise DoesNotFitError(f"{wanted} bytes; in use: {self.in_use_bytes} of {self.limit_bytes}")
        size, address = self._free.pop(at)
        self._is_free.discard(address)
        if size >= 2 * wanted or size - wanted >= MOST_WASTE_BYTES:
            self._split(address, wanted)
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

    def _extend(self, wanted: int) -> bool:
        """Take one region more, if what is left of the limit holds the request."""
        if wanted > self._left_bytes:
            return False
        is_enough = wanted <= self._next_region_bytes
        while wanted > self._next_region_bytes:
            self._next_region_bytes *= 2
        size, address = min(self._next_region_bytes, self._left_bytes), self._num_regions * _REGION_DISTANCE_BYTES
        if is_enough:
            self._next_region_bytes *= 2
        self._num_regions += 1
        self._left_bytes -= size
        self._size[address], self._before[address], self._after[address] = size, None, None
        insort(self._free, (size, address))
        self._is_free.add(address)
        return True

    def _split(self, address: int, size_bytes: int) -> None:
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


def round_up(size_bytes: int) -> int:
    """Round a request up to what the allocator takes for it."""
    return max(ALIGNMENT_BYTES, -(-size_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES)
