"""Training replayed step after step against the allocator, and recorded until it repeats itself."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from fitroom.backends.tensorflow.trace.graph.executor import Executor
from fitroom.backends.tensorflow.trace.graph.kernels import Kernels, Scratch
from fitroom.backends.tensorflow.trace.graph.program import Operation, Program
from fitroom.backends.tensorflow.trace.graph.residents import Resident, place_residents
from fitroom.backends.tensorflow.trace.graph.values import Held, Holdings, RecordedHoldings
from fitroom.memory.allocators.best_fit import BestFitAllocator, DoesNotFitError

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


class RecordedProcess:
    """The steps of one process of many, run once, without an allocator: which chunks they ask for, and when.

    Where chunks lie changes nothing about that, except that a step does without a workspace for which there is no room.
    So the same record serves every limit, and from the step on that leaves the variables as it found them it serves all
    further steps.
    """

    def __init__(
        self,
        program: Program,
        residents: Sequence[Resident],
        scratch: Scratch,
        *,
        branch: bool = True,
        seed: int = 0,
        num_steady: int = STEADY_STEPS,
    ) -> None:
        """`seed` stands for the process."""
        self._residents, self._seed = residents, seed
        self._holdings = RecordedHoldings()
        kernels = Kernels(self._holdings, scratch, place_residents(residents, self._holdings))
        executor = Executor(program, kernels, seed=seed)
        self._steps: list[_RecordedStep] = []
        while len(self._steps) < FIRST_STEPS + num_steady:
            before, found = _state(kernels), dict(kernels.variables)
            first = len(self._holdings.events)
            moments = self._run(executor, branch=branch)
            events = range(first, len(self._holdings.events))
            self._steps.append(_RecordedStep(events=events, moments=moments, found=found, left=dict(kernels.variables)))
            if _state(kernels) == before:
                break

    def _run(self, executor: Executor, *, branch: bool) -> tuple[Operation, ...]:
        moments: list[Operation] = []

        def watch(operation: Operation) -> None:
            self._holdings.moment = len(moments)
            moments.append(operation)

        executor.run_step(watch, branch=branch)
        return tuple(moments)

    def replay(self, limit_bytes: int, *, num_steady: int = STEADY_STEPS, strewn: bool = False) -> ReplayedStep:
        """The memory of the steady step that takes most. Raises DoesNotFitError where the limit does not hold them all.

        `strewn` has the variables lie a little differently.
        """
        holdings = Holdings(BestFitAllocator(limit_bytes=limit_bytes))
        placed = place_residents(self._residents, holdings, random.Random(self._seed) if strewn else None)
        places = {held: placed[name] for name, held in self._steps[0].found.items()}
        steps = []
        for number in range(FIRST_STEPS + num_steady):
            step = self._steps[min(number, len(self._steps) - 1)]
            if number >= len(self._steps):  # once more: it finds what it left
                places |= {found: places[step.left[name]] for name, found in step.found.items()}
            if number < FIRST_STEPS:
                self._replay_step(step, holdings, places)
            else:
                steps.append(self._watch_step(step, holdings, places))
        return max(steps, key=lambda step: step.peak_bytes)

    def _watch_step(self, step: "_RecordedStep", holdings: Holdings, places: dict[Held, Held]) -> ReplayedStep:
        allocator = holdings.allocator
        holdings.moment = 0
        holdings.gone.clear()
        for held in holdings.live.values():
            held.first = 0
        allocator.peak_bytes = allocator.in_use_bytes
        self._replay_step(step, holdings, places)
        last = len(step.moments) - 1
        spans = [Span(held=held, first=held.first, last=until) for held, until in holdings.gone]
        spans += [Span(held=held, first=held.first, last=last) for held in holdings.live.values()]
        return ReplayedStep(spans=tuple(spans), moments=step.moments, peak_bytes=allocator.peak_bytes)

    def _replay_step(self, step: "_RecordedStep", holdings: Holdings, places: dict[Held, Held]) -> None:
        """Ask the allocator for what the step asks for. `places`: the chunk in place of each that was recorded."""
        chunks, events, moments = self._holdings.chunks, self._holdings.events, self._holdings.moments
        for at in step.events:
            event, holdings.moment = events[at], moments[at]
            if event < 0:
                if (held := places.pop(chunks[~event], None)) is not None:
                    holdings.give_back(held)
                continue
            recorded = chunks[event]
            try:
                held = holdings.take(recorded.asked_bytes, recorded.source, is_scratch=recorded.is_scratch)
            except DoesNotFitError:
                if recorded.is_dispensable:
                    continue
                raise
            held.variable = recorded.variable
            places[recorded] = held


@dataclass(frozen=True, kw_only=True)
class _RecordedStep:
    """One step of a record."""

    events: range
    moments: tuple[Operation, ...]
    """The operations that ran."""

    found: dict[str, Held]
    """The chunk behind each variable before the step."""

    left: dict[str, Held]
    """The same after it."""


def _state(kernels: Kernels) -> object:
    """What a step depends on: which variables share a chunk, who else holds it, and which constants are made."""
    numbers: dict[Held, int] = {}
    of_variables = {
        name: (numbers.setdefault(held, len(numbers)), held.asked_bytes, held.num_holders)
        for name, held in kernels.variables.items()
    }
    return of_variables, set(kernels.fixed)


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
    """Record one process and replay it; see `RecordedProcess`."""
    process = RecordedProcess(program, residents, scratch, branch=branch, seed=seed, num_steady=num_steady)
    return process.replay(limit_bytes, num_steady=num_steady, strewn=strewn)
