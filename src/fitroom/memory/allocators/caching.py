"""PyTorch's caching allocator (`CUDACachingAllocator`), followed block by block.

It takes segments from the card and hands out blocks of them. Requests of at most 1 MiB come from segments of 2 MiB,
larger ones from segments of 20 MiB or, from 10 MiB on, of their own size. A block is taken by best fit and split
where enough is left over; what is not split off is counted as in use. Free neighbours are merged; free segments stay
with the allocator and are given back only when the card has no more.
"""

from bisect import bisect_left, insort
from dataclasses import dataclass, field

_MIB = 1024**2
MIN_BLOCK_BYTES = 512
SMALL_BYTES = _MIB
SMALL_SEGMENT_BYTES = 2 * _MIB
LARGE_SEGMENT_BYTES = 20 * _MIB
MIN_OWN_SEGMENT_BYTES = 10 * _MIB
ROUND_SEGMENT_BYTES = 2 * _MIB


class OutOfMemoryError(Exception):
    """A request that does not fit under the limit."""


@dataclass(eq=False, slots=True)
class Block:
    """A piece of a segment."""

    size_bytes: int
    address: int
    small: bool
    """Whether it lies in a segment for small requests."""

    before: "Block | None" = None
    after: "Block | None" = None
    in_use: bool = False


@dataclass(slots=True)
class CachingAllocator:
    """The allocator of one device and one stream, under a limit on what it may take from the card."""

    limit_bytes: int | None = None
    allocated_bytes: int = 0
    """In blocks that are in use."""

    reserved_bytes: int = 0
    """Taken from the card."""

    peak_reserved_bytes: int = 0
    _next_address: int = 0
    _small: list[tuple[int, int, Block]] = field(default_factory=list)
    _large: list[tuple[int, int, Block]] = field(default_factory=list)

    def allocate(self, size_bytes: int) -> Block:
        """A block of at least this size; its own size is what is counted as in use."""
        size_bytes = max(-(-size_bytes // MIN_BLOCK_BYTES), 1) * MIN_BLOCK_BYTES
        block = self._pop_free_block(size_bytes) or self._take_segment(size_bytes)
        left_bytes = block.size_bytes - size_bytes
        if left_bytes >= MIN_BLOCK_BYTES if block.small else left_bytes > SMALL_BYTES:
            rest = Block(left_bytes, block.address + size_bytes, block.small, before=block, after=block.after)
            if block.after is not None:
                block.after.before = rest
            block.after = rest
            block.size_bytes = size_bytes
            self._add_free(rest)
        block.in_use = True
        self.allocated_bytes += block.size_bytes
        return block

    def free(self, block: Block) -> None:
        """Take a block back and merge it with free neighbours."""
        block.in_use = False
        self.allocated_bytes -= block.size_bytes
        before, after = block.before, block.after
        if before is not None and not before.in_use:
            self._remove_free(before)
            block.address = before.address
            block.size_bytes += before.size_bytes
            block.before = before.before
            if before.before is not None:
                before.before.after = block
        if after is not None and not after.in_use:
            self._remove_free(after)
            block.size_bytes += after.size_bytes
            block.after = after.after
            if after.after is not None:
                after.after.before = block
        self._add_free(block)

    def _pop_free_block(self, size_bytes: int) -> Block | None:
        """The smallest free block that is large enough, at the lowest address."""
        pool = self._small if size_bytes <= SMALL_BYTES else self._large
        place = bisect_left(pool, (size_bytes, -1))
        return pool.pop(place)[2] if place < len(pool) else None

    def _take_segment(self, size_bytes: int) -> Block:
        segment_bytes = _segment_bytes(size_bytes)
        if self._is_over(segment_bytes):
            self._give_back_free_segments()
            if self._is_over(segment_bytes):
                raise OutOfMemoryError
        self.reserved_bytes += segment_bytes
        self.peak_reserved_bytes = max(self.peak_reserved_bytes, self.reserved_bytes)
        block = Block(segment_bytes, self._next_address, size_bytes <= SMALL_BYTES)
        self._next_address += segment_bytes
        return block

    def _is_over(self, more_bytes: int) -> bool:
        return self.limit_bytes is not None and self.reserved_bytes + more_bytes > self.limit_bytes

    def _give_back_free_segments(self) -> None:
        for pool in (self._small, self._large):
            self.reserved_bytes -= sum(size for size, _, block in pool if _is_whole(block))
            pool[:] = [entry for entry in pool if not _is_whole(entry[2])]

    def _add_free(self, block: Block) -> None:
        insort(self._small if block.small else self._large, (block.size_bytes, block.address, block))

    def _remove_free(self, block: Block) -> None:
        pool = self._small if block.small else self._large
        del pool[bisect_left(pool, (block.size_bytes, block.address))]


def _is_whole(block: Block) -> bool:
    """Whether a block is all of its segment."""
    return block.before is None and block.after is None


def _segment_bytes(size_bytes: int) -> int:
    if size_bytes <= SMALL_BYTES:
        return SMALL_SEGMENT_BYTES
    if size_bytes < MIN_OWN_SEGMENT_BYTES:
        return LARGE_SEGMENT_BYTES
    return -(-size_bytes // ROUND_SEGMENT_BYTES) * ROUND_SEGMENT_BYTES
