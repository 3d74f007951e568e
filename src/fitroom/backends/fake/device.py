"""The fake devices: the card counts like an allocator that caches, and takes no real memory."""

from fitroom.backends.contract import Device, MemoryReading
from fitroom.backends.fake.out_of_memory import FakeOutOfMemoryError

GPU = Device(name="gpu:0", kind="gpu", description="Fake card")
CPU = Device(name="cpu:0", kind="cpu", description=None)
UNCOUNTED = MemoryReading(in_use_bytes=None, peak_bytes=None, reserved_bytes=None, limit_bytes=None)


class FakeMemory:
    """The memory of one fake device.

    >>> memory = FakeMemory(capacity_bytes=100)
    >>> block = memory.allocate(60)
    >>> memory.free(block)
    >>> memory.read().peak_bytes, memory.read().in_use_bytes
    (60, 0)
    """

    def __init__(self, *, capacity_bytes: int) -> None:
        self.capacity_bytes = capacity_bytes
        self._size_bytes_of_block: dict[int, int] = {}
        self._num_blocks_made = 0
        self._peak_bytes = 0
        self._reserved_bytes = 0

    @property
    def in_use_bytes(self) -> int:
        """Held by blocks that were not freed."""
        return sum(self._size_bytes_of_block.values())

    def allocate(self, size_bytes: int) -> int:
        """A new block; its number is for `free`. Raises FakeOutOfMemoryError beyond the capacity."""
        if self.in_use_bytes + size_bytes > self.capacity_bytes:
            raise FakeOutOfMemoryError(size_bytes, in_use_bytes=self.in_use_bytes, capacity_bytes=self.capacity_bytes)
        self._num_blocks_made += 1
        self._size_bytes_of_block[self._num_blocks_made] = size_bytes
        self._peak_bytes = max(self._peak_bytes, self.in_use_bytes)
        self._reserved_bytes = max(self._reserved_bytes, self.in_use_bytes)
        return self._num_blocks_made

    def free(self, block: int) -> None:
        """Free a block. Its bytes stay reserved until `release`."""
        del self._size_bytes_of_block[block]

    def read(self) -> MemoryReading:
        """All four counters."""
        return MemoryReading(
            in_use_bytes=self.in_use_bytes,
            peak_bytes=self._peak_bytes,
            reserved_bytes=self._reserved_bytes,
            limit_bytes=self.capacity_bytes,
        )

    def reset_peak(self) -> None:
        """Start the peak anew from what is in use."""
        self._peak_bytes = self.in_use_bytes

    def release(self) -> None:
        """Give back what is reserved and not in use."""
        self._reserved_bytes = self.in_use_bytes
