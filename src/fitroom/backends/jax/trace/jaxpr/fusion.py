"""Which values of a step get memory of their own, and which kernels write them.

Fused: what XLA's GPU compiler does, in rules found by comparing with it (`benchmarks/predict/traced_error.py`).
Operations that a library carries out read and write memory. So do reductions and their like, but what they read is
computed on the way. All else is computed where it is needed, as often as it is needed, and takes no memory.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from fitroom.backends.jax.trace.jaxpr.primitives import (
    COMPARISONS,
    COSTLY,
    LIBRARY,
    PASSED_ON,
    RENAMING,
    is_computed_on_the_way,
    writes_memory,
)
from fitroom.backends.jax.trace.jaxpr.program import Operation, Program

_SHORT_COLUMN = 4096
"""XLA sums longer columns in two stages, and only then reads what it sums a second time instead of keeping it."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """What runs as one piece: it reads values from memory and writes others to it."""

    operation: Operation
    reads: frozenset[int]
    writes: tuple[int, ...]
    in_place: bool
    """Whether a value read here for the last time can give its place to one that is written."""


@dataclass(frozen=True, slots=True)
class Kernels:
    """The kernels of a program in an order that works, and the sizes of the values they read and write."""

    kernels: list[Kernel]
    sizes_bytes: list[int]


def unfused_kernels(program: Program) -> Kernels:
    """Every operation by itself, as when a step is not compiled."""
    kernels = [Kernel(op, frozenset(op.inputs), op.outputs, in_place=False) for op in program.operations]
    return Kernels(kernels, list(program.sizes_bytes))


def fused_kernels(program: Program) -> Kernels:
    """What XLA makes of the operations."""
    return _Fuser(program).kernels()


@dataclass(slots=True)
class _Fuser:
    program: Program
    makers: dict[int, Operation] = field(init=False)
    users: dict[int, list[Operation]] = field(init=False)
    sizes_bytes: list[int] = field(init=False)
    kept: set[int] = field(init=False)
    memory_behind: dict[int, frozenset[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        operations = self.program.operations
        self.sizes_bytes = list(self.program.sizes_bytes)
        self.makers = {value: operation for operation in operations for value in operation.outputs}
        self.users = defaultdict(list)
        for operation in operations:
            for value in operation.inputs:
                self.users[value].append(operation)
        self.kept = {self._renamed(value) for value in self._values_kept()}

    def kernels(self) -> Kernels:
        found: list[Kernel] = []
        copies: dict[int, int] = {}
        zeros_made, zeros_read = self._zeros_of_pools()
        for operation in self.program.operations:
            writes = [value for value in operation.outputs if value in self.kept]
            if not writes:
                continue
            reads = {value for read in operation.inputs for value in self._memory_behind(read)}
            if operation.name == "conv_general_dilated":
                for weight in reads.intersection(self.program.arguments):
                    if weight not in copies:
                        copies[weight] = self._new(self.sizes_bytes[weight])
                        found.append(Kernel(operation, frozenset((weight,)), (copies[weight],), in_place=False))
                reads = {copies.get(value, value) for value in reads}
            elif operation.name == "select_and_scatter_add":
                found.append(self._indices_of(operation))
                reads.update(found[-1].writes)
            writes += zeros_made.get(writes[0], ())
            reads.update(zeros_read.get(writes[0], ()))
            # A kernel that also sums what it writes cannot write it where it reads.
            summed = any(writes_memory(reader.name) for reader in self._readers(writes[0]))
            in_place = is_computed_on_the_way(operation.name) and not summed
            found.append(Kernel(operation, frozenset(reads), tuple(writes), in_place))
        return Kernels(found, self.sizes_bytes)

    def _new(self, size_bytes: int) -> int:
        self.sizes_bytes.append(size_bytes)
        return len(self.sizes_bytes) - 1

    def _values_kept(self) -> Iterable[int]:
        yield from (value for value in self.program.results if value is not None)
        yield from self.program.carried
        random: set[int] = set()
        for operation in self.program.operations:
            name = operation.name
            if name in LIBRARY:
                passed_on = PASSED_ON.get(name, RENAMING)
                yield from (self._source(value, passed_on) for value in operation.inputs)
            if not is_computed_on_the_way(name):
                yield from operation.outputs
            if name == "random_bits" or random.intersection(operation.inputs):
                # Random bits are costly to make: what is kept of them is the mask that is made of them.
                if name in COMPARISONS:
                    yield from operation.outputs
                elif is_computed_on_the_way(name):
                    random.update(operation.outputs)
            if self._kept_for_backward(operation):
                yield from operation.outputs

    def _kept_for_backward(self, operation: Operation) -> bool:
        """Whether XLA keeps a value for the backward pass that it could recompute."""
        match operation.name:
            case "erf" | "erfc":
                return True
            case "exp":
                # In half precision the slope of erf is kept as well as the function.
                return operation.itemsize_bytes < 4 and self._is_slope_of_erf(operation)
            case "sub":
                return self._summed_in_short_columns(operation.outputs[0])
            case "mul":
                return self._is_costly(operation)
        return False

    def _summed_in_short_columns(self, value: int) -> bool:
        """Whether a value, squared, is summed by a single kernel, and used again: a deviation in BatchNormalization."""
        squares = [user for user in self.users[value] if user.name in ("square", "mul", "integer_pow")]
        sums = [reader for square in squares for reader in self.users[square.outputs[0]]]
        return len(self.users[value]) > 1 and any(0 < (s.column_length or 0) <= _SHORT_COLUMN for s in sums)

    def _is_costly(self, operation: Operation) -> bool:
        """Whether a value with a function such as the logistic in it is read by a reduction and by others."""
        made_of = (self.makers.get(value) for value in operation.inputs)
        readers = self._readers(operation.outputs[0])
        return (
            any(maker is not None and maker.name in COSTLY for maker in made_of)
            and len(readers) > 1
            and any(writes_memory(reader.name) for reader in readers)
        )

    def _is_slope_of_erf(self, operation: Operation) -> bool:
        """Whether it is exp(-x * x) of the x that erf or erfc is taken of."""
        source = self._source(operation.inputs[0], frozenset(("neg", "square", "integer_pow")))
        return any(user.name in ("erf", "erfc") for user in self.users[source])

    def _readers(self, value: int) -> list[Operation]:
        """The operations that read a value, be it in another precision."""
        converted = [user for user in self.users[value] if user.name == "convert_element_type"]
        return self.users[value] + [reader for user in converted for reader in self.users[user.outputs[0]]]

    def _indices_of(self, operation: Operation) -> Kernel:
        """The backward pass of max pooling first finds where each maximum was: an index for each of four axes."""
        gradient, pooled = operation.inputs[0], operation.inputs[-1]
        indices = tuple(self._new(self.sizes_bytes[gradient]) for _ in range(4))
        return Kernel(operation, self._memory_behind(pooled), indices, in_place=False)

    def _zeros_of_pools(self) -> tuple[dict[int, tuple[int, ...]], dict[int, tuple[int, ...]]]:
        """The zeros that the backward pass of max pooling adds into, by the values they are made and read with.

        Where the ReLU of a convolution is pooled, they are the same as the zeros of that ReLU: XLA makes them with the
        first convolution of that size, and a copy to write to.
        """
        made: dict[int, tuple[int, ...]] = {}
        read: dict[int, tuple[int, ...]] = {}
        first_of_size: dict[int, int] = {}
        for operation in self.program.operations:
            value = operation.outputs[0] if operation.outputs else -1
            size_bytes = self.sizes_bytes[value]
            if operation.name == "conv_general_dilated":
                first_of_size.setdefault(size_bytes, value)
            if operation.name != "select_and_scatter_add" or not self._is_relu_of_convolution(operation.inputs[-1]):
                continue
            first = first_of_size.get(size_bytes)
            if first is not None and first not in made:
                made[first] = read[value] = (self._new(size_bytes), self._new(size_bytes))
        return made, read

    def _is_relu_of_convolution(self, value: int) -> bool:
        """Whether a value is a ReLU right after a convolution and its bias, without a normalization between."""
        relu = self.makers.get(self._renamed(value))
        if relu is None or relu.name != "max":
            return False
        behind = {v for read in relu.inputs for v in self._memory_behind(read)} & self.makers.keys()
        return len(behind) == 1 and self.makers[behind.pop()].name == "conv_general_dilated"

    def _source(self, value: int, through: frozenset[str]) -> int:
        while (maker := self.makers.get(value)) and maker.name in through and maker.inputs:
            value = maker.inputs[0]
        return value

    def _renamed(self, value: int) -> int:
        return self._source(value, RENAMING)

    def _memory_behind(self, value: int) -> frozenset[int]:
        """The values in memory that a value is computed of."""
        pending = [value]
        while pending:
            current = pending[-1]
            if current in self.memory_behind:
                pending.pop()
            elif current in self.kept or current not in self.makers:
                self.memory_behind[current] = frozenset((current,))
            elif missing := [v for v in self.makers[current].inputs if v not in self.memory_behind]:
                pending += missing
            else:
                inputs = self.makers[current].inputs
                self.memory_behind[current] = frozenset().union(*(self.memory_behind[v] for v in inputs))
        return self.memory_behind[value]
