"""Training replayed step after step against the allocator, until it repeats itself."""

from collections.abc import Sequence
from dataclasses import dataclass

from fitroom.backends.tensorflow.graph.executor import Executor
from fitroom.backends.tensorflow.graph.kernels import Kernels, Scratch
from fitroom.backends.tensorflow.graph.program import Operation, Program
from fitroom.backends.tensorflow.graph.residents import Resident, placed
from fitroom.backends.tensorflow.graph.values import Held, Holdings
from fitroom.estimating.allocators.best_fit import BestFitAllocator

STEADY_STEPS = 3
"""Chunks are cut differently in the first steps; after as many as this a step repeats the one before."""


@dataclass(frozen=True, kw_only=True)
class Span:
    """A chunk and the moments of the last step at which it was held, both ends included."""

    held: Held
    first: int
    last: int


@dataclass(frozen=True, kw_only=True)
class Replayed:
    """The last step of a replay."""

    spans: tuple[Span, ...]
    moments: tuple[Operation, ...]
    """The operations that ran."""

    peak_bytes: int


def replay(
    program: Program, residents: Sequence[Resident], scratch: Scratch, limit_bytes: int, *, branch: bool = True
) -> Replayed:
    """The memory of a steady step. Raises DoesNotFit where the limit does not hold it."""
    allocator = BestFitAllocator(limit_bytes=limit_bytes)
    holdings = Holdings(allocator)
    kernels = Kernels(holdings, scratch, placed(residents, holdings))
    executor = Executor(program, kernels)
    for _ in range(STEADY_STEPS - 1):
        executor.run_step(lambda operation: None, branch=branch)
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
    return Replayed(
        spans=tuple(spans),
        moments=tuple(moments),
        peak_bytes=allocator.peak_bytes,
    )
