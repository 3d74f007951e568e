"""A traced JAX function as one flat list of operations: calls inlined, dead operations left out."""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

from fitroom.backends.jax.trace.jaxpr.primitives import CALLS, LOOP_CARRY, LOOPS
from fitroom.backends.jax.train.micro_batches import MICRO_BATCH_LOOP
from fitroom.backends.jax.train.programs import jaxprs_in


@dataclass(frozen=True, kw_only=True, slots=True)
class Operation:
    """One operation on numbered values."""

    name: str
    """The JAX primitive: "conv_general_dilated", "add", ..."""

    scope: str
    """The scopes of the traced function around it, and its own name."""

    inputs: tuple[int, ...]
    """Values read; literals, which take no memory, are left out."""

    outputs: tuple[int, ...]
    itemsize_bytes: int
    """Of an element of its first output."""

    column_length: int | None = None
    """How many elements each sum of a reduction is made of, where it keeps the last axis; None for all else."""

    bodies: "tuple[Program, ...]" = ()
    """What a loop or a condition runs; empty for all else."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Program:
    """Operations in the order of the trace."""

    operations: tuple[Operation, ...]
    arguments: tuple[int, ...]
    """The values it is given."""

    constants: tuple[int, ...]
    """Arrays that the traced function closes over."""

    results: tuple[int | None, ...]
    """The values it returns; None where one is a literal."""

    sizes_bytes: tuple[int, ...]
    """The size of each value."""

    carried: frozenset[int] = frozenset()
    """What a loop that is followed through one round hands to the next: it is in memory."""


def program_of(jaxpr: Any, *, merged: bool) -> Program:
    """The flat program of a closed or open jaxpr.

    `merged`: what is computed twice from the same values is computed once, as a compiler has it.
    """
    return _Flattener(merged).flatten(getattr(jaxpr, "jaxpr", jaxpr))


class _Flattener:
    def __init__(self, merged: bool) -> None:
        self._merged = merged
        self._seen: dict[tuple[Any, ...], list[int]] = {}
        self._sizes_bytes: list[int] = []
        self._operations: list[Operation] = []
        self._carried: set[int] = set()

    def flatten(self, jaxpr: Any) -> Program:
        arguments = [self._new(variable) for variable in jaxpr.invars]
        constants = [self._new(variable) for variable in jaxpr.constvars]
        known = dict(zip([*jaxpr.invars, *jaxpr.constvars], [*arguments, *constants], strict=True))
        results = self._inline(jaxpr, known, scope="")
        operations = _live(self._operations, results)
        used = {value for operation in operations for value in operation.inputs}.union(results)
        return Program(
            operations=operations,
            arguments=tuple(arguments),
            constants=tuple(value for value in constants if value in used),
            results=tuple(results),
            sizes_bytes=tuple(self._sizes_bytes),
            carried=frozenset(self._carried),
        )

    def _new(self, variable: Any) -> int:
        self._sizes_bytes.append(_size_bytes(variable.aval))
        return len(self._sizes_bytes) - 1

    def _inline(self, jaxpr: Any, known: dict[Any, int | None], scope: str) -> list[int | None]:
        """Add the operations of a jaxpr whose inputs are known; a literal is known as None."""

        def value_of(atom: Any) -> int | None:
            return None if hasattr(atom, "val") else known[atom]

        for equation in jaxpr.eqns:
            name = equation.primitive.name
            around = "/".join(filter(None, (scope, str(equation.source_info.name_stack))))
            inputs = [value_of(atom) for atom in equation.invars]
            bodies = list(jaxprs_in(equation.params.values()))
            if name in CALLS and bodies and len(bodies[0].invars) == len(inputs):
                inner = dict(zip(bodies[0].invars, inputs, strict=True))
                inner |= {variable: self._new(variable) for variable in bodies[0].constvars}
                with self._unmerged() if equation.params.get("prevent_cse") else nullcontext():
                    results = self._inline(bodies[0], inner, around)
                known |= dict(zip(equation.outvars, results, strict=True))
                continue
            if _is_micro_batch_loop(equation):
                known |= dict(zip(equation.outvars, self._one_round(equation, bodies[0], inputs, around), strict=True))
                continue
            signature = _signature(equation, inputs) if self._merged and name not in LOOPS else ()
            if signature in self._seen:
                known |= dict(zip(equation.outvars, self._seen[signature], strict=True))
                continue
            outputs = [self._new(variable) for variable in equation.outvars]
            if signature:
                self._seen[signature] = outputs
            known |= dict(zip(equation.outvars, outputs, strict=True))
            self._operations.append(
                Operation(
                    name=name,
                    scope=f"{around}/{name}",
                    inputs=tuple(value for value in inputs if value is not None),
                    outputs=tuple(outputs),
                    itemsize_bytes=_itemsize_bytes(equation.outvars[0].aval) if outputs else 0,
                    column_length=_column_length(equation),
                    bodies=tuple(program_of(body, merged=self._merged) for body in bodies) if name in LOOPS else (),
                )
            )
        return [value_of(atom) for atom in jaxpr.outvars]

    @contextmanager
    def _unmerged(self) -> Iterator[None]:
        """Merge nothing of the block with what was computed before it: that is not held so long."""
        before, self._seen = self._seen, {}
        yield
        self._seen = before

    def _one_round(self, loop: Any, body: Any, inputs: Sequence[int | None], scope: str) -> list[int | None]:
        """Follow a loop through its body once, with what it carries in memory before and after."""
        num_consts = sum(map(_is_as_given, loop.invars, body.invars)) - len(loop.outvars)
        carried = slice(num_consts, num_consts + len(loop.outvars))
        given: list[int | None] = [self._new(variable) for variable in body.invars]
        given[:num_consts] = inputs[:num_consts]
        given[carried] = [
            self._first_carried(value, variable)
            for value, variable in zip(inputs[carried], body.invars[carried], strict=True)
        ]
        inner = dict(zip(body.invars, given, strict=True))
        inner |= {variable: self._new(variable) for variable in body.constvars}
        results = self._inline(body, inner, scope)
        self._carried.update(value for value in results if value is not None)
        return results

    def _first_carried(self, value: int | None, variable: Any) -> int:
        """The first value of what a loop carries, written to memory, unless an earlier loop did so."""
        if value is not None and value in self._carried:
            return value
        maker = next((operation for operation in self._operations if value in operation.outputs), None)
        carried = self._new(variable)
        scope = maker.scope if maker else LOOP_CARRY
        size_bytes = _itemsize_bytes(variable.aval)
        self._operations.append(
            Operation(name=LOOP_CARRY, scope=scope, inputs=(), outputs=(carried,), itemsize_bytes=size_bytes)
        )
        return carried


def _is_micro_batch_loop(equation: Any) -> bool:
    """Whether an equation is the loop of a step in micro-batches, which stacks nothing but only carries."""
    if equation.primitive.name != "scan" or str(equation.source_info.name_stack).rpartition("/")[2] != MICRO_BATCH_LOOP:
        return False
    [body] = jaxprs_in(equation.params.values())
    return all(map(_is_as_given, equation.outvars, body.outvars))


def _is_as_given(outside: Any, inside: Any) -> bool:
    """Whether a value of a loop is the same in every round; else one round has a slice of it, or makes one.

    What a loop tells of that by itself differs from version to version of JAX.
    """
    return len(outside.aval.shape) == len(inside.aval.shape)


def _signature(equation: Any, inputs: Sequence[int | None]) -> tuple[Any, ...]:
    """What two equations have in common that compute the same."""
    literals = tuple(repr(atom.val) for atom in equation.invars if hasattr(atom, "val"))
    types = tuple(str(variable.aval) for variable in equation.outvars)
    return equation.primitive.name, tuple(inputs), literals, types, str(equation.params)


def _column_length(equation: Any) -> int | None:
    axes = equation.params.get("axes")
    if not axes or not equation.primitive.name.startswith("reduce_"):
        return None
    shape = equation.invars[0].aval.shape
    return None if len(shape) - 1 in axes else math.prod(shape[axis] for axis in axes)


def _live(operations: Sequence[Operation], results: Sequence[int | None]) -> tuple[Operation, ...]:
    """The operations that a result depends on."""
    needed = set(results)
    kept = []
    for operation in reversed(operations):
        if needed.intersection(operation.outputs):
            needed.update(operation.inputs)
            kept.append(operation)
    return tuple(reversed(kept))


def _size_bytes(aval: Any) -> int:
    return _itemsize_bytes(aval) * math.prod(getattr(aval, "shape", ()))


def _itemsize_bytes(aval: Any) -> int:
    # A token, which orders effects, has no dtype; a random key's dtype has no size in older versions.
    return int(getattr(getattr(aval, "dtype", None), "itemsize", 0))
