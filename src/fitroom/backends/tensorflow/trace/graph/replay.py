"""Training replayed step after step against the allocator, until it repeats itself."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from fitroom.backends.tensorflow.trace.graph.executor import Executor
from fitroom.backends.tensorflow.trace.graph.kernels import Kernels, Scratch
from fitroom.backends.tensorflow.trace.graph.program import Operation, Program
from fitroom.backends.tensorflow.trace.graph.residents import Resident, place_residents
from fitroom.backends.tensorflow.trace.graph.values import Held, Holdings
from fitroom.memory.allocators.best_fit import BestFitAllocator

FIRST_STEPS = 2
"""The optimizer's slots get memory of their own in the first step, and the second is the first to live with it."""

STEADY_STEPS = 2
"""From then on steps are alike, but not the same: variables that are assigned anew lie elsewhere after each."""


@dataclass(frozen=True, kw_only=True)
class Span:
    """A chunk and the moments of a step at which it was held, both ends included."""

    held: Held
    first: int
    last: int


@dataclass(frozen=True, kw_only=True)
class ReplayedStep:
    """One step of a replay."""

    spans: tuple[Span, ...]
    moments: tuple[Operation, ...]
    """The operations that ran."""

    peak_bytes: int


def replay(
    program: Program,
    residents: Sequence[Resident],
    scratch: Scratch,
    limit_bytes: int,
    *,
    branch: bool = True,
    num_steady: int = STEADY_STEPS,
    seed: int = 0,
    strewn: bool = False,
) -> ReplayedStep:
    """The memory of the steady step that takes most. Raises DoesNotFitError where the limit does not hold them all.

    `seed` is for one process of many; `strewn` has its variables lie a little differently, too.
    """
    allocator = BestFitAllocator(limit_bytes=limit_bytes)
    holdings = Holdings(allocator)
    kernels = Kernels(holdings, scratch, place_residents(residents, holdings, random.Random(seed) if strewn else None))
    executor = Executor(program, kernels, seed=seed)
    for _ in range(FIRST_STEPS):
        executor.run_step(lambda operation: None, branch=branch)
    steps = [_watch_step(executor, branch=branch) for _ in range(num_steady)]
    return max(steps, key=lambda step: step.peak_bytes)


def _watch_step(executor: Executor, *, branch: bool) -> ReplayedStep:
    holdings = executor.kernels.holdings
    allocator = holdings.allocator
    moments: list[Operation] = []

    def watch(operation: Operation) -> None:
        holdings.moment = len(moments)
        moments.append(operation)

    holdings.moment = 0
    holdings.gone.clear()
    for held in holdings.live.values():
        held.first = 0
    allocator.peak_bytes = allocator.in_use_bytes
    executor.run_step(watch, branch=branch)
    last = len(moments) - 1
    spans = [Span(held=held, first=held.first, last=until) for held, until in holdings.gone]
    spans += [Span(held=held, first=held.first, last=last) for held in holdings.live.values()]
    return ReplayedStep(spans=tuple(spans), moments=tuple(moments), peak_bytes=allocator.peak_bytes)
