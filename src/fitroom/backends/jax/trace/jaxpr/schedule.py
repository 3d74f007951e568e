"""The order in which kernels run, and from when to when each value is in memory."""

import heapq
from collections import defaultdict
from collections.abc import Sequence

from fitroom.backends.jax.trace.jaxpr.fusion import Kernel, Kernels
from fitroom.memory.timeline import Moment

Lifetimes = dict[int, tuple[int, int]]
"""By value: the first and the last kernel, by number, during which it is in memory."""


def lifetimes(found: Kernels) -> Lifetimes:
    """When each value that a kernel writes is in memory. A value that none reads is gone at once."""
    kernels, sizes_bytes = found.kernels, found.sizes_bytes
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for moment, kernel in enumerate(kernels):
        for value in kernel.writes:
            first[value] = last[value] = moment
        for value in kernel.reads & first.keys():
            last[value] = moment
    for moment, kernel in enumerate(kernels):
        if kernel.in_place:
            dying = {value for value in kernel.reads & first.keys() if last[value] == moment}
            for written in kernel.writes:
                heir = next((v for v in dying if sizes_bytes[v] == sizes_bytes[written]), None)
                if heir is not None:
                    dying.remove(heir)
                    last[heir] = moment - 1
    return {value: (first[value], last[value]) for value in first}


def held_lifetimes(kernels: list[Kernel], lived: Lifetimes, moments: Sequence[Moment]) -> Lifetimes:
    """When each value is in memory where Python holds on to it, as it does when a step runs operation by operation.

    What one layer hands to another is held until the forward pass is done, what the forward pass leaves for the
    backward pass until that is done, and gradients until the update is.
    """
    end_of = {moment.phase: number for number, moment in enumerate(moments)}
    handed_on = {
        value
        for number, kernel in enumerate(kernels)
        for value in kernel.reads & lived.keys()
        if moments[number].layer != moments[lived[value][0]].layer
    }

    def last_held(value: int, first: int, last: int) -> int:
        made, read = moments[first].phase, moments[last].phase
        if (made, read) == ("backward", "update"):
            return len(moments) - 1
        if (made, read) == ("forward", "backward"):
            return end_of["backward"]
        return max(last, end_of["forward"]) if made == "forward" and value in handed_on else last

    return {value: (first, last_held(value, first, last)) for value, (first, last) in lived.items()}


def least_memory_order(found: Kernels) -> list[Kernel]:
    """The kernels in the order of XLA's list scheduler: of those that could run next, the one that frees most.

    It is greedy. What is small and needs nothing runs first, and a gradient that is larger than what its kernel would
    free waits until the end.
    """
    kernels, sizes_bytes = found.kernels, found.sizes_bytes
    writers = {value: number for number, kernel in enumerate(kernels) for value in kernel.writes}
    readers: dict[int, set[int]] = defaultdict(set)
    missing = []
    for number, kernel in enumerate(kernels):
        made_here = kernel.reads & writers.keys()
        missing.append(len(made_here))
        for value in made_here:
            readers[value].add(number)

    def priority(number: int) -> tuple[int, int]:
        kernel = kernels[number]
        freed = sum(sizes_bytes[value] for value in kernel.reads & writers.keys() if len(readers[value]) == 1)
        return sum(sizes_bytes[value] for value in kernel.writes) - freed, number

    ready = [priority(number) for number, count in enumerate(missing) if count == 0]
    heapq.heapify(ready)
    order: list[Kernel] = []
    done: set[int] = set()
    while ready:
        entry = heapq.heappop(ready)
        number = entry[1]
        if number in done or entry != priority(number):
            continue  # an entry from before it could free more
        done.add(number)
        order.append(kernels[number])
        changed: set[int] = set()
        for value in kernels[number].writes:
            for reader in readers[value]:
                missing[reader] -= 1
                changed.add(reader)
        for value in kernels[number].reads & writers.keys():
            readers[value].discard(number)
            changed |= readers[value] if len(readers[value]) == 1 else set()
        for reader in changed:
            if missing[reader] == 0:
                heapq.heappush(ready, priority(reader))
    assert len(order) == len(kernels), "kernels wait for one another"
    return order
