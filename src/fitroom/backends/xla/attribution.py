"""Attribution of XLA instructions: which Keras layer, which phase of the step, which kind of memory.

An instruction carries the scope of the operation that it was made of, which each framework writes in its own way and
reads by its own `ScopeReader`. XLA fuses and copies; what carries no name of its own takes it from what it fuses, from
its operands, or, having none (a block of zeros to add into), from whoever uses it.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from fitroom.backends.xla.dump import Dump, Value
from fitroom.memory.timeline import Kind, Phase

_SCRATCH_TYPES = ("u8[", "s8[")
_MAX_DEPTH = 8

KIND_OF_PHASE: dict[Phase | None, Kind] = {
    "forward": "activations",
    "backward": "gradients",
    "update": "optimizer",
    None: "other",
}
"""The kind of memory that an operation takes, by the phase of the step it runs in."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Argument:
    """One array that the step is given and that stays on the device."""

    size_bytes: int
    kind: Kind
    layer: str | None
    shape: tuple[int, ...] = ()
    """Empty where nobody asks for it."""


class ScopeReader(Protocol):
    """Reads the scope of an operation: the names around it in the traced function, and its own."""

    @property
    def training(self) -> bool:
        """Whether the step trains: only then is there a backward pass."""

    def layer(self, scope: str) -> str | None:
        """The path of the Keras layer, or None where the operation belongs to none."""

    def phase(self, scope: str) -> Phase | None:
        """The phase of the step, or None where the scope is empty."""

    def recomputes(self, scope: str) -> bool:
        """Whether the operation recomputes some of the forward pass, in the backward pass."""

    def tells(self, scope: str) -> bool:
        """Whether a name says more than that it is part of the step."""


class Attribution:
    """The layer, phase and kind of memory of every instruction of one program."""

    def __init__(self, dump: Dump, arguments: tuple[Argument, ...], scope_reader: ScopeReader) -> None:
        self._program = dump.program
        self._reader = scope_reader
        # Where an argument lies, other values may lie before and after it, and a loop has it under a name of its own.
        self._parameters = {
            value.instruction: arguments[allocation.parameter]
            for allocation in dump.allocations
            if allocation.parameter is not None
            for value in allocation.values
            if dump.program.is_parameter(value.instruction) and value.place == "{}"
        }
        self._users: dict[str, list[str]] = defaultdict(list)
        for name, instruction in dump.program.instructions.items():
            for operand in instruction.operands:
                self._users[operand].append(name)
        self._scopes: dict[str, str] = {}

    def layer(self, name: str) -> str | None:
        """The path of the layer that the instruction belongs to."""
        if name in self._parameters:
            return self._parameters[name].layer
        return self._reader.layer(self._scope(name))

    def phase(self, name: str) -> Phase | None:
        """The phase of the step in which the instruction runs, or None where the compiler does not tell."""
        phase = self._reader.phase(self._scope(name))
        # What XLA recomputes by itself is a forward operation that runs in the backward pass.
        recomputed = phase is not None and self._reader.training and ".remat" in name
        return "backward" if recomputed else phase

    def kind(self, value: Value) -> Kind:
        """What the memory of a temporary value is for."""
        instruction = self._program.instructions.get(value.instruction)
        if instruction and instruction.opcode == "custom-call" and value.shape.startswith(_SCRATCH_TYPES):
            return "workspace"
        if self._is_of_weights(value.instruction):
            return "weights"  # a copy of weights in another layout or precision
        scope = self._scope(value.instruction)
        by_xla = self._reader.phase(scope) != "backward" and ".remat" in value.instruction
        if by_xla or self._reader.recomputes(scope):
            return "activations"
        return KIND_OF_PHASE[self.phase(value.instruction)]

    def _scope(self, name: str) -> str:
        """The scopes of the traced function around the instruction; "" where nothing tells."""
        if name not in self._scopes:
            made_of = self._nearest(name, lambda name: self._program.instructions[name].operands)
            self._scopes[name] = made_of or self._nearest(name, self._users.__getitem__)
        return self._scopes[name]

    def _nearest(self, name: str, neighbours: Callable[[str], Sequence[str]], depth: int = 0) -> str:
        """The scope of the instruction, or else of the first neighbour that has one."""
        if name not in self._program.instructions or depth > _MAX_DEPTH:
            return ""
        if scope := self._own_scope(name):
            return scope
        scopes = (self._nearest(neighbour, neighbours, depth + 1) for neighbour in neighbours(name))
        return next(filter(None, scopes), "")

    def _own_scope(self, name: str) -> str:
        instruction = self._program.instructions[name]
        fused = reversed(self._program.computations.get(instruction.called or "", []))
        # XLA makes one constant of equal ones: it has the name of whoever came first.
        op_names = (
            instruction.op_name,
            *(self._program.instructions[i].op_name for i in fused if not self._is_constant(i)),
        )
        return next(filter(self._reader.tells, op_names), "")

    def _is_of_weights(self, name: str, depth: int = 0) -> bool:
        """Whether a value is made of weights alone."""
        if argument := self._parameters.get(name):
            return argument.kind == "weights"
        instruction = self._program.instructions.get(name)
        if instruction is None or instruction.opcode == "custom-call" or depth > _MAX_DEPTH:
            return False
        operands = [o for o in instruction.operands if not self._is_constant(o)]
        return bool(operands) and all(self._is_of_weights(operand, depth + 1) for operand in operands)

    def _is_constant(self, name: str) -> bool:
        instruction = self._program.instructions.get(name)
        return instruction is not None and instruction.opcode == "constant"
