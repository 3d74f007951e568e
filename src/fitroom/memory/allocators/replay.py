"""Requests to PyTorch's allocator, in order: recorded, extended by further steps, and replayed on the model of it."""

import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass, replace
from itertools import pairwise

from fitroom.memory.allocators.caching import Block, CachingAllocator, OutOfMemoryError


@dataclass(frozen=True, kw_only=True)
class Requests:
    """Allocations and frees in the order in which they happen."""

    sizes_bytes: Sequence[int]
    """Of each buffer."""

    events: Sequence[int]
    """A buffer's number where it is allocated, its complement (`~number`) where it is freed."""

    collected: Set[int] = frozenset()
    """Buffers that are freed when the language collects garbage, at a time that differs from process to process."""

    def extend(self, last_step: int, times: int) -> "Requests":
        """Repeat the last step, which begins with event number `last_step`, so many more times.

        What it frees of the step before, its repetition frees of it: buffers of the same size, in order.
        """
        step = self.events[last_step:]
        made = {event for event in step if event >= 0}
        freed = [~event for event in step if event < 0]
        left = defaultdict(list)
        for number in sorted(made.difference(freed), reverse=True):
            left[self.sizes_bytes[number]].append(number)
        found = [number for number in freed if number not in made]
        heirs = {number: left[size].pop() for number in sorted(found) if left[size := self.sizes_bytes[number]]}
        sizes_bytes, events, collected = list(self.sizes_bytes), list(self.events), set(self.collected)
        before = {number: number for number in made}
        for _ in range(times):
            now: dict[int, int] = {}
            for event in step:
                if event >= 0:
                    now[event] = len(sizes_bytes)
                    sizes_bytes.append(self.sizes_bytes[event])
                    events.append(now[event])
                elif ~event in made:
                    events.append(~now[~event])
                elif ~event in heirs:
                    events.append(~before[heirs[~event]])
            collected.update(now[number] for number in made & self.collected)
            before = now
        return Requests(sizes_bytes=sizes_bytes, events=events, collected=collected)

    def with_late_collections(self, seed: int) -> "Requests":
        """Delay each garbage collection, as another process may: by up to the average distance between two of them."""
        chance = random.Random(seed)
        freed_late = [event < 0 and ~event in self.collected for event in self.events]
        num_collections = sum(late and not before for before, late in pairwise([False, *freed_late]))
        between = len(self.events) // max(num_collections, 1)
        events: list[int] = []
        waiting: list[int] = []
        until = 0
        for at, (event, late) in enumerate(zip(self.events, freed_late, strict=True)):
            if late:
                if not waiting:
                    until = at + chance.randint(0, between)
                waiting.append(event)
                continue
            if waiting and at >= until:
                events += waiting
                waiting.clear()
            events.append(event)
        return replace(self, events=[*events, *waiting])


_STEP_BYTES = 2 * 1024**2
"""The caching allocator takes memory from the card in multiples of this."""

_STEPS_PER_LIMIT = 250
_STEPS_ABOVE = 12
"""Limits are tried up to 4.8 % above the one found, in steps of 0.4 %."""

_STEPS_FOR_ALL = 100
"""A limit for several processes is raised by 1 % until all of them fit."""


@dataclass(frozen=True, kw_only=True)
class Replay:
    """The outcome of a replay."""

    block_bytes: list[int]
    """The bytes that each buffer counts for, by its number."""

    reserved_bytes: int
    """The most that was taken from the card."""


def replay(requests: Requests, limit_bytes: int | None = None) -> Replay:
    """Replay the requests on a fresh allocator. Raises OutOfMemoryError where the limit does not hold them."""
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
    found = _smallest(lambda limit_bytes: _fits(requests, limit_bytes), lowest_bytes, highest_bytes)
    above = [_round_up(found + found * step // _STEPS_PER_LIMIT) for step in range(1, _STEPS_ABOVE + 1)]
    for place in reversed(range(len(above) - 1)):
        if not _fits(requests, above[place]):
            return above[place + 1]
    return found


def limit_for_all_bytes(processes: Iterable[Requests], limit_bytes: int) -> int:
    """A limit, from `limit_bytes` on, under which the requests of every process are met."""
    for requests in processes:
        while not _fits(requests, limit_bytes):
            limit_bytes = _round_up(limit_bytes + limit_bytes // _STEPS_FOR_ALL)
    return limit_bytes


def _fits(requests: Requests, limit_bytes: int) -> bool:
    try:
        replay(requests, limit_bytes)
    except OutOfMemoryError:
        return False
    return True


def _smallest(runs: Callable[[int], bool], lowest_bytes: int, highest_bytes: int) -> int:
    low, high = lowest_bytes // _STEP_BYTES, _round_up(highest_bytes) // _STEP_BYTES
    while low < high:
        middle = (low + high) // 2
        if runs(middle * _STEP_BYTES):
            high = middle
        else:
            low = middle + 1
    return high * _STEP_BYTES


def _round_up(size_bytes: int) -> int:
    return -(-size_bytes // _STEP_BYTES) * _STEP_BYTES
