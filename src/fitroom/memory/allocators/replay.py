"""What a program asked of an allocator, played back on a model of it."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from fitroom.memory.allocators.caching import Block, CachingAllocator, OutOfMemoryError
from fitroom.memory.allocators.requests import Requests

_STEP_BYTES = 2 * 1024**2
"""The caching allocator takes memory from the card in multiples of this."""

_STEPS_A_WHOLE = 250
_STEPS_ABOVE = 12
"""Limits are tried up to 4.8 % above the one found, by 0.4 %."""

_STEPS_FOR_ALL = 100
"""And by 1 % until they hold several processes."""


@dataclass(frozen=True, kw_only=True)
class Replay:
    """What became of the requests."""

    block_bytes: list[int]
    """What each buffer is counted as, by number."""

    reserved_bytes: int
    """The most that was taken from the card."""


def replay(requests: Requests, limit_bytes: int | None = None) -> Replay:
    """Play the requests on a fresh allocator. Raises OutOfMemoryError where the limit does not hold them."""
    allocator = CachingAllocator(limit_bytes=limit_bytes)
    blocks: dict[int, Block] = {}
    block_bytes = [0] * len(requests.sizes_bytes)
    for event in requests.events:
        if event >= 0:
            block = allocator.allocate(requests.sizes_bytes[event])
            blocks[event] = block
            block_bytes[event] = block.size_bytes
        else:
            allocator.free(blocks.pop(~event))
    return Replay(block_bytes=block_bytes, reserved_bytes=allocator.peak_reserved_bytes)


def smallest_limit_bytes(requests: Requests, lowest_bytes: int, highest_bytes: int) -> int:
    """The smallest limit from which on the requests are met, between two that bracket it.

    Under a larger limit other segments are given back, at other times, and now and then that fails where a smaller one
    does not. So limits a little above are tried too, and none that fails is below the one returned.
    """
    found = _smallest(lambda limit_bytes: _runs(requests, limit_bytes), lowest_bytes, highest_bytes)
    above = [_rounded_up(found + found * step // _STEPS_A_WHOLE) for step in range(1, _STEPS_ABOVE + 1)]
    for place in reversed(range(len(above) - 1)):
        if not _runs(requests, above[place]):
            return above[place + 1]
    return found


def limit_for_all_bytes(processes: Iterable[Requests], limit_bytes: int) -> int:
    """A limit that holds these, too, which may be larger than the one given."""
    for requests in processes:
        while not _runs(requests, limit_bytes):
            limit_bytes = _rounded_up(limit_bytes + limit_bytes // _STEPS_FOR_ALL)
    return limit_bytes


def _runs(requests: Requests, limit_bytes: int) -> bool:
    try:
        replay(requests, limit_bytes)
    except OutOfMemoryError:
        return False
    return True


def _smallest(runs: Callable[[int], bool], lowest_bytes: int, highest_bytes: int) -> int:
    low, high = lowest_bytes // _STEP_BYTES, _rounded_up(highest_bytes) // _STEP_BYTES
    while low < high:
        middle = (low + high) // 2
        if runs(middle * _STEP_BYTES):
            high = middle
        else:
            low = middle + 1
    return high * _STEP_BYTES


def _rounded_up(size_bytes: int) -> int:
    return -(-size_bytes // _STEP_BYTES) * _STEP_BYTES
