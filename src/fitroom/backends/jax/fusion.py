"""Which values of a step get memory of their own, and which kernels write them.

Fused: what XLA's GPU compiler does, in rules found by comparing with it (`benchmarks/traced_error.py`). Operations
that a library carries out read and write memory. So do reductions and their like, but what they read is computed on
the way. All else is computed where it is needed, as often as it is needed, and takes no memory.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from fitroom.backends.jax.program import Operation, Program

_LOOPS = frozenset(("scan", "while", "cond"))
_LIBRARY = _LOOPS | frozenset(
    "conv_general_dilated dot_general ragged_dot sort top_k approx_top_k fft cholesky triangular_solve eigh eig svd "
    "lu qr householder_product custom_call ffi_call pallas_call".split()
)
_KERNELS = frozenset(
    "reduce reduce_sum reduce_max reduce_min reduce_prod reduce_and reduce_or reduce_xor argmax argmin reduce_window "
    "reduce_window_sum reduce_window_max reduce_window_min select_and_scatter_add select_and_gather_add scatter "
    "scatter-add scatter_add scatter-mul scatter_mul scatter-min scatter_min scatter-max scatter_max gather "
    "dynamic_update_slice concatenate cumsum cumprod cummax cummin cumlogsumexp".split()
)
_RENAMING = frozenset("reshape squeeze expand_dims copy copy_p stop_gradient optimization_barrier random_wrap".split())
_PASSED_ON = {
    # A convolution pads, turns and reverses what it reads by itself, a matrix product transposes.
    "conv_general_dilated": _RENAMING | {"transpose", "rev", "pad"},
    "dot_general": _RENAMING | {"transpose"},
}
_COMPARISONS = frozenset(("lt", "le", "gt", "ge"))
_COSTLY = frozenset(("logistic", "tanh"))
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
            in_place = operation.name not in _LIBRARY and operation.name not in _KERNELS
            found.append(Kernel(operation, frozenset(reads), tuple(writes), in_place))
        return Kernels(found, self.sizes_bytes)

    def _new(self, size_bytes: int) -> int:
        self.sizes_bytes.append(size_bytes)
        return len(self.sizes_bytes) - 1

    def _values_kept(self) -> Iterable[int]:
        yield from (value for value in self.program.results if value is not None)
        random: set[int] = set()
        for operation in self.program.operations:
            name = operation.name
            if name in _LIBRARY:
                passed_on = _PASSED_ON.get(name, _RENAMING)
                yield from (self._source(value, passed_on) for value in operation.inputs)
            if name in _LIBRARY or name in _KERNELS:
                yield from operation.outputs
            if name == "random_bits" or random.intersection(operation.inputs):
                # Random bits are dear: what is kept of them is the mask that is made of them.
                if name in _COMPARISONS:
                    yield from operation.outputs
                elif name not in _LIBRARY and name not in _KERNELS:
                    random.update(operation.outputs)
            yield from self._kept_for_backward(operation)

    def _kept_for_backward(self, operation: Operation) -> Iterable[int]:
        """What could be computed again and is not."""
        if operation.name in ("erf", "erfc"):
            yield from operation.outputs
        elif operation.name == "sub" and self._summed_in_short_columns(operation.outputs[0]):
            yield from operation.outputs
        elif operation.name == "mul" and self._is_costly(operation):
            yield from operation.outputs

    def _summed_in_short_columns(self, value: int) -> bool:
        """Whether a value, squared, is summed by a single kernel, and used again: a deviation in BatchNormalization."""
        squares = [user for user in self.users[value] if user.name in ("square", "mul", "integer_pow")]
        sums = [reader for square in squares for reader in self.users[square.outputs[0]]]
        return len(self.users[value]) > 1 and any(0 < (s.column_length or 0) <= _SHORT_COLUMN for s in sums)

    def _is_costly(self, operation: Operation) -> bool:
        """Whether a value with a function such as the logistic in it is read by a reduction and by others."""
        made_of = (self.makers.get(value) for value in operation.inputs)
        readers = self.users[operation.outputs[0]]
        return (
            any(maker is not None and maker.name in _COSTLY for maker in made_of)
            and len(readers) > 1
            and any(reader.name in _KERNELS for reader in readers)
        )

    def _indices_of(self, operation: Operation) -> Kernel:
        """The backward pass of max pooling first finds where each maximum was: an index for each of four axes."""
        gradient, pooled = operation.inputs[0], operation.inputs[-1]
        indices = tuple(self._new(self.sizes_bytes[gradient]) for _ in range(4))
        return Kernel(operation, self._memory_behind(pooled), indices, in_place=False)

    def _zeros_of_pools(self) -> tuple[dict[int, tuple[int, ...]], dict[int, tuple[int, ...]]]:
        """The zeros that the backward pass of max pooling adds into, by the values they are made and read with.

        They are the same as the zeros of a ReLU of that shape before it, if there is one that is kept: XLA makes them
        there, and a copy to write to.
        """
        relus = [op.outputs[0] for op in self.program.operations if op.name == "max" and op.outputs[0] in self.kept]
        made: dict[int, tuple[int, ...]] = {}
        read: dict[int, tuple[int, ...]] = {}
        for operation in self.program.operations:
            if operation.name != "select_and_scatter_add":
                continue
            size_bytes, pooled = self.sizes_bytes[operation.outputs[0]], operation.inputs[-1]
            # Values are numbered in the order in which they are made.
            before = [value for value in relus if self.sizes_bytes[value] == size_bytes and value < pooled]
            if before and before[0] not in made:
                zeros = (self._new(size_bytes), self._new(size_bytes))
                made[before[0]] = read[operation.outputs[0]] = zeros
        return made, read

    def _source(self, value: int, through: frozenset[str]) -> int:
        while (maker := self.makers.get(value)) and maker.name in through and maker.inputs:
            value = maker.inputs[0]
        return value

    def _renamed(self, value: int) -> int:
        return self._source(value, _RENAMING)

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
