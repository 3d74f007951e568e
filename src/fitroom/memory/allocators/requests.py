"""What a program asks of an allocator, in order: as it was recorded, further on, and in other processes."""

import random
from collections import defaultdict
from collections.abc import Sequence, Set
from dataclasses import dataclass, replace
from itertools import pairwise


@dataclass(frozen=True, kw_only=True)
class Requests:
    """Allocations and frees in the order in which they happen."""

    sizes_bytes: Sequence[int]
    """Of each buffer."""

    events: Sequence[int]
    """A buffer's number where it is allocated, its complement (`~number`) where it is freed."""

    collected: Set[int] = frozenset()
    """Buffers that are freed when the language collects garbage, at a time that differs from process to process."""

    def going_on(self, last_step: int, times: int) -> "Requests":
        """The same with more steps at the end, like the last one, which begins with the event of that number.

        What it frees of the step before it frees of itself when it comes again: buffers of the same size, in order.
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
        """The same in another process: each collection comes later, by up to what lies between two on the average."""
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
