"""TensorFlow's executor, replayed: which operation runs when.

On a GPU one thread takes operations from a queue, first in, first out; one that has all its inputs joins the queue.
Those that wait for nothing, and those that wait for the same tensor where they are many, come in the order of their
addresses in memory: it stays the same for a process and differs from the next.
Loops run in frames, one iteration after another or several at once; what a branch not taken would make is dead.
"""

import random
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from fitroom.backends.tensorflow.trace.graph.kernels import Kernels
from fitroom.backends.tensorflow.trace.graph.program import Operation, Program
from fitroom.backends.tensorflow.trace.graph.values import Held, TensorList, Value

Watcher = Callable[[Operation], None]
"""Called before each operation that runs."""

_MANY = 8
"""Up to as many edges of a node TensorFlow keeps in the order in which they were made."""

_ON_CARD = ("LogicalAnd", "LogicalOr", "LogicalNot")
"""Computed on the card. A loop that asks for the answer has to wait for all that the card has yet to do."""

_OF_LOOPS = ("Enter", "Exit", "NextIteration")
"""What they make goes to another frame, or to another round of theirs."""

_DATA = -1
"""In place of an input's number: the edge carries no data but an order."""


@dataclass(eq=False)
class _Iteration:
    """One round of a frame: what its operations still wait for."""

    frame: "_Frame"
    number: int
    pending: dict[int, int] = field(default_factory=dict)
    inputs: dict[int, dict[int, Value]] = field(default_factory=dict)
    dead: dict[int, int] = field(default_factory=dict)
    num_outstanding: int = 0


@dataclass(eq=False)
class _Frame:
    """A loop that is running, or the graph outside of loops."""

    parent: _Iteration | None
    most_at_once: int = 1
    iterations: dict[int, _Iteration] = field(default_factory=dict)
    invariants: list[tuple[int, Value]] = field(default_factory=list)
    waiting: list[tuple[int, Value]] = field(default_factory=list)
    oldest: int = 0
    num_to_enter: int = 0
    """What the loop still waits for from outside."""


class Executor:
    """Runs a program step by step."""

    def __init__(self, program: Program, kernels: Kernels, *, seed: int = 0) -> None:
        """`seed` stands for the addresses of a process."""
        self.program, self.kernels = program, kernels
        operations = program.operations
        self._consumers: list[list[tuple[int, int, int]]] = [[] for _ in operations]
        self._followers: list[list[int]] = [[] for _ in operations]
        for operation in operations:
            for place, (source, slot) in enumerate(operation.inputs):
                self._consumers[source].append((slot, operation.index, place))
            for source in operation.control_inputs:
                self._followers[source].append(operation.index)
        addresses = random.Random(seed)
        self._roots = [each.index for each in operations if not each.inputs and not each.control_inputs]
        addresses.shuffle(self._roots)
        for consumers in self._consumers:
            if len(consumers) > _MANY:
                addresses.shuffle(consumers)
        self._num_entering = Counter(
            each.attributes["frame_name"].s.decode() for each in operations if each.op == "Enter"
        )
        self._waits_for_card = [
            each.op == "LoopCond" and operations[each.inputs[0][0]].op in _ON_CARD for each in operations
        ]
        self._is_merge = [operation.op == "Merge" for operation in operations]
        self._is_of_loop = [operation.op in _OF_LOOPS for operation in operations]
        self._pending = [
            1 + 2 * len(each.control_inputs) if each.op == "Merge" else len(each.inputs) + len(each.control_inputs)
            for each in operations
        ]

    def run_step(self, watcher: Watcher, *, branch: bool = True) -> int:
        """Run all that can run; `branch` is taken where the running step alone could know. How many operations ran."""
        self._ready: deque[tuple[int, _Iteration, bool]] = deque()
        self._awaited: deque[tuple[int, _Iteration, bool]] = deque()
        self._frames: dict[tuple[int, int, str], _Frame] = {}
        self._branch = branch
        main = _Iteration(_Frame(parent=None), 0)
        main.frame.iterations[0] = main
        self._kept: list[Held | TensorList | None] = [self.kernels.variables.get(name) for name in self.program.held]
        for held in self._kept:
            self.kernels.holdings.hold(held)
        for index in self._roots:
            self._make_ready(index, main, is_dead=False)
        num_run = 0
        while self._ready or self._awaited:
            index, iteration, is_dead = (self._ready or self._awaited).popleft()
            operation = self.program.operations[index]
            given = iteration.inputs.pop(index, {})
            if is_dead:
                outputs: list[Value | None] = [None] * len(operation.outputs)
            else:
                watcher(operation)
                num_run += 1
                outputs = self._run(operation, given)
            for value in given.values():
                if value.memory is not None:
                    self.kernels.holdings.release(value.memory)
            self._propagate(operation, iteration, outputs, is_dead=is_dead)
            iteration.num_outstanding -= 1
            if iteration.frame.parent is not None:
                self._clean_up(iteration)
        for kept in self._kept:
            self.kernels.holdings.release(kept)
        return num_run

    def _run(self, operation: Operation, given: dict[int, Value]) -> list[Value | None]:
        if operation.op == "Switch":
            data, predicate = given[0], given[1].number
            taken = self._branch if predicate is None else bool(predicate)
            self.kernels.holdings.hold(data.memory)
            return [None, data] if taken else [data, None]
        if operation.op == "Merge":
            ((place, data),) = given.items()
            self.kernels.holdings.hold(data.memory)
            return [data, Value(operation.outputs[1], number=place)]
        return list(self.kernels.run(operation, [given[place] for place in range(len(operation.inputs))]))

    def _propagate(
        self, operation: Operation, iteration: _Iteration, outputs: Sequence[Value | None], *, is_dead: bool
    ) -> None:
        holdings = self.kernels.holdings
        if operation.index in self.program.results and isinstance(outputs[0], Value):
            holdings.hold(outputs[0].memory)
            self._kept.append(outputs[0].memory)
        target: _Iteration | None = iteration
        if not self._is_of_loop[operation.index]:
            pass
        elif operation.op == "Enter" and not is_dead:
            frame = self._frame(operation.attributes, iteration)
            frame.num_to_enter -= 1
            target = frame.iterations[0]
            if operation.attributes["is_constant"].b and outputs[0] is not None:
                frame.invariants.append((operation.index, outputs[0]))
                holdings.hold(outputs[0].memory)
                for other in list(frame.iterations.values())[1:]:
                    self._deliver(operation.index, other, outputs, is_dead=False)
        elif operation.op == "Exit":
            target = None if is_dead else iteration.frame.parent
        elif operation.op == "NextIteration":
            target = None if is_dead else self._next(operation, iteration, outputs[0])
        if target is not None:
            self._deliver(operation.index, target, outputs, is_dead=is_dead)
        for value in outputs:
            if value is not None and value.memory is not None:
                holdings.release(value.memory)

    def _deliver(self, index: int, target: _Iteration, outputs: Sequence[Value | None], *, is_dead: bool) -> None:
        for slot, consumer, place in self._consumers[index]:
            value = outputs[slot]
            if value is not None:
                if value.memory is not None:
                    value.memory.num_holders += 1
                given = target.inputs.get(consumer)
                if given is None:
                    target.inputs[consumer] = {place: value}
                else:
                    given[place] = value
            self._arrive(consumer, target, place, is_dead=value is None)
        for follower in self._followers[index]:
            self._arrive(follower, target, _DATA, is_dead=is_dead)

    def _arrive(self, index: int, iteration: _Iteration, place: int, *, is_dead: bool) -> None:
        pending = iteration.pending.get(index, self._pending[index])
        if not self._is_merge[index]:
            iteration.pending[index] = pending - 1
            if is_dead:
                iteration.dead[index] = 1
            if pending == 1:
                self._make_ready(index, iteration, is_dead=index in iteration.dead)
            return
        num_dead = iteration.dead.get(index, 0)
        if place == _DATA:
            pending -= 2
        elif is_dead:
            num_dead += 1
        elif pending & 1:
            pending -= 1
        all_dead = num_dead == len(self.program.operations[index].inputs)
        ready = pending == 0 if place != _DATA and not is_dead else pending == 1 and all_dead
        ready = ready or (place == _DATA and pending == 0)
        iteration.pending[index], iteration.dead[index] = pending, num_dead
        if ready:
            self._make_ready(index, iteration, is_dead=pending == 1)

    def _make_ready(self, index: int, iteration: _Iteration, *, is_dead: bool) -> None:
        iteration.num_outstanding += 1
        queue = self._awaited if self._waits_for_card[index] else self._ready
        queue.append((index, iteration, is_dead))

    def _frame(self, attributes: Any, iteration: _Iteration) -> _Frame:
        name = attributes["frame_name"].s.decode()
        key = (id(iteration.frame), iteration.number, name)
        frame = self._frames.get(key)
        if frame is None:
            frame = self._frames[key] = _Frame(iteration, attributes["parallel_iterations"].i or 1)
            frame.num_to_enter = self._num_entering[name]
            frame.iterations[0] = _Iteration(frame, 0)
            iteration.num_outstanding += 1  # the loop itself keeps the round it is in from ending
        return frame

    def _next(self, operation: Operation, iteration: _Iteration, value: Value | None) -> _Iteration | None:
        """The following round, or None where it has to wait until fewer rounds are under way."""
        frame = iteration.frame
        following = frame.iterations.get(iteration.number + 1)
        if following is None:
            if len(frame.iterations) >= frame.most_at_once and value is not None:
                self.kernels.holdings.hold(value.memory)
                frame.waiting.append((operation.index, value))
                return None
            following = self._begin(frame, iteration.number + 1)
        return following

    def _begin(self, frame: _Frame, number: int) -> _Iteration:
        begun = frame.iterations[number] = _Iteration(frame, number)
        for index, value in frame.invariants:
            self._deliver(index, begun, [value], is_dead=False)
        return begun

    def _clean_up(self, iteration: _Iteration) -> None:
        """End the rounds that are done, oldest first, and begin those that waited for it."""
        frame = iteration.frame
        while frame.parent is not None:
            oldest = frame.iterations.get(frame.oldest)
            if oldest is None or oldest.num_outstanding or frame.num_to_enter:
                return
            del frame.iterations[frame.oldest]
            frame.oldest += 1
            if frame.waiting:
                waiting, frame.waiting = frame.waiting, []
                following = self._begin(frame, frame.oldest + len(frame.iterations))
                for index, value in waiting:
                    self._deliver(index, following, [value], is_dead=False)
                    self.kernels.holdings.release(value.memory)
            if not frame.iterations:
                for _, value in frame.invariants:
                    self.kernels.holdings.release(value.memory)
                frame.parent.num_outstanding -= 1
                self._clean_up(frame.parent)
                return
