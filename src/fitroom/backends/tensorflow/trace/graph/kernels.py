"""What the kernel of one operation does with memory."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import tensorflow as tf

from fitroom.backends.tensorflow.trace.graph.memory_rules import RECEIVE, SHARING, inputs_to_reuse, on_card
from fitroom.backends.tensorflow.trace.graph.output import Output
from fitroom.backends.tensorflow.trace.graph.program import Operation
from fitroom.backends.tensorflow.trace.graph.running_values import complete_shape, compute_number, constant_number
from fitroom.backends.tensorflow.trace.graph.tensor_lists import LIST_KERNELS
from fitroom.backends.tensorflow.trace.graph.values import Held, Holdings, Value
from fitroom.memory.allocators.best_fit import DoesNotFitError


@dataclass(frozen=True, kw_only=True)
class ScratchPlan:
    """The scratch memory that a kernel asks for while it runs."""

    sizes: tuple[int, ...] = ()
    """One for each request, in order."""

    workspace_bytes: int = 0
    """The library's own request, after those. Where there is no room another algorithm does without."""

    place_of_output: int | None = None
    """The request that ends up as the output, in whose stead the output's own memory is given back."""


Scratch = Callable[[Operation, Sequence[Output]], ScratchPlan]
"""The plan of an operation, given what its inputs are."""

_UPDATES = ("AssignAddVariableOp", "AssignSubVariableOp")


@dataclass
class Kernels:
    """Runs operations against the allocator: outputs made, shared or taken over, scratch taken and given back."""

    holdings: Holdings
    scratch: Scratch
    variables: dict[str, Held] = field(default_factory=dict)
    """The chunk behind each variable, by the name of its handle."""

    fixed: dict[int, Value] = field(default_factory=dict)
    """What is the same in each step. Constants of the card stay there once their kernel is made."""

    def run(self, operation: Operation, inputs: Sequence[Value]) -> list[Value]:
        """The outputs, each held once. The inputs are still held while the kernel runs."""
        op = operation.op
        if op == "Const":
            return [self._constant(operation)]
        if op == "VarHandleOp":
            return [self._handle(operation)]
        if op == "VariableShape":
            return [Value(operation.outputs[0], number=inputs[0].number)]
        if op == RECEIVE:
            taken = self.holdings.take(operation.outputs[0].size_bytes, operation.index)
            return [Value(operation.outputs[0], taken, inputs[0].number)]
        if op == "ReadVariableOp":
            held = self.variables.get(inputs[0].variable or "")
            self.holdings.hold(held)
            return [Value(operation.outputs[0], held)]
        if op.startswith("Assign") and op.endswith("VariableOp"):
            self._assign(operation, inputs)
            return []
        if op in LIST_KERNELS and any(value.dtype == tf.variant for value in self._dtypes(operation, inputs)):
            return LIST_KERNELS[op](self.holdings, operation, inputs)
        return self._plain(operation, inputs)

    def _dtypes(self, operation: Operation, inputs: Sequence[Value]) -> list[Output]:
        return [*operation.outputs, *(value.output for value in inputs)]

    def _constant(self, operation: Operation) -> Value:
        if operation.index not in self.fixed:
            (output,) = operation.outputs
            needed = output.size_bytes if on_card(operation, output) else 0
            held = self.holdings.take(needed, operation.index) if needed else None
            self.fixed[operation.index] = Value(output, held, constant_number(operation))
        value = self.fixed[operation.index]
        self.holdings.hold(value.memory)
        return value

    def _handle(self, operation: Operation) -> Value:
        if operation.index not in self.fixed:
            shape = _shape_of_variable(operation)
            self.fixed[operation.index] = Value(operation.outputs[0], variable=operation.name, number=shape)
        return self.fixed[operation.index]

    def _assign(self, operation: Operation, inputs: Sequence[Value]) -> None:
        """A new value shares the memory it is in; one that others read is changed in a copy."""
        name, given = inputs[0].variable or "", inputs[1].memory
        old = self.variables.get(name)
        if old is None:
            return
        if operation.op not in _UPDATES and isinstance(given, Held):
            self.holdings.hold(given)
            new = given
        elif old.num_holders > 1:
            new = self.holdings.take(old.asked_bytes, operation.index)
        else:
            return
        new.variable = name
        self.variables[name] = new
        self.holdings.release(old)

    def _plain(self, operation: Operation, inputs: Sequence[Value]) -> list[Value]:
        number = compute_number(operation, [value.number for value in inputs])
        outputs = [
            self._output(operation, slot, output, inputs, number) for slot, output in enumerate(operation.outputs)
        ]
        plan = self.scratch(operation, [value.output for value in inputs])
        if not plan.sizes and not plan.workspace_bytes:
            return outputs
        taken = [
            self.holdings.take(size_bytes, operation.index, is_scratch=True) if size_bytes else None
            for size_bytes in plan.sizes
        ]
        taken.append(self._workspace(operation, plan.workspace_bytes))
        if plan.place_of_output is not None and isinstance(kept := taken[plan.place_of_output], Held):
            taken[plan.place_of_output] = None
            kept.is_scratch = False
            self.holdings.release(outputs[0].memory)
            outputs[0] = Value(outputs[0].output, kept)
        for held in taken:
            self.holdings.release(held)
        return outputs

    def _workspace(self, operation: Operation, size_bytes: int) -> Held | None:
        try:
            if not size_bytes:
                return None
            return self.holdings.take(size_bytes, operation.index, is_scratch=True, is_dispensable=True)
        except DoesNotFitError:
            return None

    def _output(
        self, operation: Operation, slot: int, output: Output, inputs: Sequence[Value], number: object
    ) -> Value:
        if operation.op in SHARING and slot < len(inputs):
            value = inputs[slot]
            self.holdings.hold(value.memory)
            known = output if output.num_elements is not None else value.output
            return Value(known, value.memory, value.number, value.variable)
        output = complete_shape(operation, output, inputs)
        if not output.size_bytes or not on_card(operation, output):
            return Value(output, None, number)
        for place in inputs_to_reuse(operation, slot):
            value = inputs[place]
            if (
                isinstance(value.memory, Held)
                and value.memory.num_holders == 1
                and value.output.dtype == output.dtype
                and value.output.num_elements == output.num_elements
            ):
                self.holdings.hold(value.memory)
                return Value(output, value.memory, number)
        return Value(output, self.holdings.take(output.size_bytes, operation.index), number)


def _shape_of_variable(operation: Operation) -> list[int]:
    return [each.size for each in operation.attributes["shape"].shape.dim]
