"""Reading what XLA writes about a compiled program: its instructions, its schedule, its buffers.

Text files of one dump, each parsed into the few facts an estimate needs: `*after_optimizations.txt` (instructions),
`*live-range.txt` (schedule and lifetimes; before 0.10 these stand at the end of the next), `*buffer-assignment.txt`
(sizes and places).
"""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Literal

_PROGRAM = "gpu_after_optimizations.txt"
_LIVE_RANGE = "gpu_after_optimizations-live-range.txt"
_BUFFERS = "gpu_after_optimizations-buffer-assignment.txt"
_LIVE_RANGE_HEADING = "\nHloLiveRange ("

_COMPUTATION = re.compile(r"^(?:ENTRY )?%?([\w.\-]+) \(.*\{$")
_INSTRUCTION = re.compile(r"^\s+(?:ROOT )?%([\w.\-]+) = (.*)$")
_OPCODE = re.compile(r" ([a-z][\w\-]*)\(")
_OP_NAME = re.compile(r'op_name="([^"]*)"')
_CALLED = re.compile(r"(?:calls|body|to_apply)=%([\w.\-]+)")
_OPERAND = re.compile(r"%([\w.\-]+)")
_ALLOCATION = re.compile(r"^allocation \d+: size (\d+), (.*)$")
_PARAMETER = re.compile(r"parameter (\d+), shape")
_VALUE = re.compile(  # "phi": what a loop is given, hands from round to round, and returns
    r"^ value: <\d+ ([\w.\-]+)(\{[\d,]*\})?(?: \(phi\))? @\d+> \(size=(\d+),offset=(\d+)\): (.*)$"
)
_RANGE = re.compile(r"^    ([\w.\-]+\{[\d,]*\}):(\d+)-(\d+)$", re.MULTILINE)
_DO_NOTHING = ("", "parameter", "constant", "get-tuple-element", "tuple", "bitcast")
_SCHEDULED = re.compile(r"^    \d+:([\w.\-]+)$", re.MULTILINE)


Role = Literal["parameter", "temporary", "output", "constant"]
_ROLES: dict[str, Role] = {"preallocated-temp": "temporary", "live-out": "output", "constant": "constant"}


@dataclass(frozen=True, slots=True)
class Instruction:
    """One line of the optimised program."""

    opcode: str
    shape: str
    """Of its result, as in "f32[8,16]"; of the first part where there are several."""
    op_name: str
    """Where it comes from in the traced function; "" where XLA made it."""
    operands: tuple[str, ...]
    called: str | None
    """The computation that it fuses or loops over."""

    @property
    def dtype(self) -> str:
        """Of its result, as in "f32"."""
        return self.shape.partition("[")[0]

    @property
    def dimensions(self) -> tuple[int, ...]:
        """Of its result."""
        return tuple(map(int, re.findall(r"\d+", self.shape.partition("[")[2])))

    @property
    def num_elements(self) -> int:
        """Of its result."""
        return math.prod(self.dimensions)


@dataclass(frozen=True, slots=True)
class Program:
    """All instructions by name, and the names in each computation."""

    instructions: dict[str, Instruction]
    computations: dict[str, list[str]]

    def is_parameter(self, name: str) -> bool:
        """Whether the name is an argument's."""
        return name in self.instructions and self.instructions[name].opcode == "parameter"


@dataclass(frozen=True, slots=True)
class Schedule:
    """The order of execution, and from when to when each value lives (both ends included)."""

    instructions: list[str]
    lifetimes: dict[str, tuple[int, int]]
    """By value: an instruction's name and the place in its result, as in "fusion.1{0}"."""


@dataclass(frozen=True, slots=True)
class Value:
    """A value placed in an allocation."""

    instruction: str
    place: str
    """Which part of the instruction's result: "{}" for all of it, "{1}" for its second part."""
    shape: str
    size_bytes: int
    offset: int


@dataclass(frozen=True, slots=True)
class Allocation:
    """A block that the program asks of the allocator, or is given."""

    size_bytes: int
    role: Role
    parameter: int | None
    values: list[Value]


@dataclass(frozen=True, slots=True)
class Dump:
    """What XLA says about one program."""

    program: Program
    schedule: Schedule
    allocations: list[Allocation]


def read_dump(folder: Path) -> Dump:
    """Parse the dump of the one program that was compiled into `folder`."""
    # A compile may dump small helper programs too; the step is the largest.
    largest = max(folder.glob("*" + _BUFFERS), key=lambda path: path.stat().st_size)
    start = largest.name.removesuffix(_BUFFERS)
    buffers, _, live_range = largest.read_text().partition(_LIVE_RANGE_HEADING)
    if (beside := folder / (start + _LIVE_RANGE)).exists():
        live_range = beside.read_text()
    program = _parse_program((folder / (start + _PROGRAM)).read_text())
    return Dump(
        program=program,
        schedule=_only_what_runs(_parse_schedule(live_range), program),
        allocations=list(_parse_allocations(buffers)),
    )


def dumped_bytes(folder: Path) -> int | None:
    """The size of what `read_dump` reads, or None while a part of it is not there.

    XLA writes these files one right after the other, in an order that changes between its versions; when their size
    stands still, they are whole.
    """
    sizes = [sum(path.stat().st_size for path in folder.glob("*" + suffix)) for suffix in (_PROGRAM, _BUFFERS)]
    lifetimes = sum(path.stat().st_size for path in folder.glob("*" + _LIVE_RANGE))
    if not all(sizes) or not (lifetimes or _holds_lifetimes(folder)):
        return None
    return sum(sizes) + lifetimes


def _holds_lifetimes(folder: Path) -> bool:
    return any(_LIVE_RANGE_HEADING in path.read_text(errors="replace") for path in folder.glob("*" + _BUFFERS))


def _parse_program(text: str) -> Program:
    instructions: dict[str, Instruction] = {}
    computations: dict[str, list[str]] = {}
    names: list[str] = []
    for line in text.splitlines():
        if match := _INSTRUCTION.match(line):
            name, definition = match[1], match[2]
            opcode, op_name = _OPCODE.search(" " + definition), _OP_NAME.search(definition)
            called = _CALLED.search(definition)
            arguments = definition[: called.start()] if called else definition
            instructions[name] = Instruction(
                opcode=opcode[1] if opcode else "",
                shape=definition.lstrip("(").partition("]")[0] + "]",
                op_name=op_name[1] if op_name else "",
                operands=tuple(_OPERAND.findall(arguments)),
                called=called[1] if called else None,
            )
            names.append(name)
        elif match := _COMPUTATION.match(line):
            names = computations.setdefault(match[1], [])
    return Program(instructions=instructions, computations=computations)


def _parse_schedule(text: str) -> Schedule:
    sequence, _, rest = text.partition("  BufferLiveRange:\n")
    lifetimes, _, _ = rest.partition("  Live ranges at")
    return Schedule(
        instructions=_SCHEDULED.findall(sequence),
        lifetimes={name: (int(first), int(last)) for name, first, last in _RANGE.findall(lifetimes)},
    )


def _only_what_runs(schedule: Schedule, program: Program) -> Schedule:
    """The schedule without the names that XLA lists in it but that do nothing: arguments, parts of results."""
    # XLA may leave parts of results out of the program's text altogether.
    opcodes = [
        program.instructions[name].opcode if name in program.instructions else "" for name in schedule.instructions
    ]
    runs = [opcode not in _DO_NOTHING for opcode in opcodes]
    # How many instructions have run before each place, the end included.
    before = [0, *accumulate(runs)]
    return Schedule(
        instructions=[name for name, does in zip(schedule.instructions, runs, strict=True) if does],
        lifetimes={
            value: (before[first], before[min(last, len(runs) - 1) + 1] - 1)
            for value, (first, last) in schedule.lifetimes.items()
        },
    )


def _parse_allocations(text: str) -> Iterator[Allocation]:
    current: Allocation | None = None
    for line in text.splitlines():
        if match := _ALLOCATION.match(line):
            current = _new_allocation(int(match[1]), match[2])
            if current:
                yield current
        elif current and (match := _VALUE.match(line)):
            current.values.append(Value(match[1], match[2] or "{}", match[5], int(match[3]), int(match[4])))


def _new_allocation(size_bytes: int, description: str) -> Allocation | None:
    # In this order: an argument that is updated in place is both a parameter and live out.
    if parameter := _PARAMETER.search(description):
        return Allocation(size_bytes, "parameter", int(parameter[1]), [])
    for mark, role in _ROLES.items():
        if mark in description:
            return Allocation(size_bytes, role, None, [])
    return None  # thread-local: registers of a fused kernel, not memory
