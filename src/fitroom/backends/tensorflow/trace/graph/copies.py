"""The copies from host to card that TensorFlow puts between operations.

Whole numbers are computed on the host. Where one goes to a kernel that works on the card, a pair of operations is put
between: one sends the number, the other takes memory of the card for it. In a loop these bytes decide how the memory
around them is cut, and so how much of it goes to waste.
"""

from dataclasses import replace

import tensorflow as tf

from fitroom.backends.tensorflow.trace.graph.memory_rules import RECEIVE, SEND, on_card
from fitroom.backends.tensorflow.trace.graph.program import Operation, Program

_LISTS = {"TensorListPushBack": 1, "TensorListSetItem": 2}
"""Lists whose tensors are on the card, whatever they are of; and which input the tensor is."""

_LOGIC = ("LogicalAnd", "LogicalOr", "LogicalNot")


def with_copies(program: Program) -> Program:
    """The program with a pair of operations for each number of the host that is wanted on the card."""
    operations = list(program.operations)
    copies: dict[tuple[int, int], int] = {}
    for operation in program.operations:
        inputs = list(operation.inputs)
        for place, source in enumerate(operation.inputs):
            if _is_wanted_on_card(operation, place) and _is_on_host(program.operations[source[0]], source[1]):
                if source not in copies:
                    copies[source] = _copy(operations, *source)
                inputs[place] = (copies[source], 0)
        if inputs != list(operation.inputs):
            operations[operation.index] = replace(operation, inputs=tuple(inputs))
    return replace(program, operations=tuple(operations))


def _is_wanted_on_card(operation: Operation, place: int) -> bool:
    return operation.op in _LOGIC or _LISTS.get(operation.op) == place


def _is_on_host(source: Operation, slot: int) -> bool:
    output = source.outputs[slot]
    return output.dtype in (tf.int32, tf.bool) and not on_card(source, output)


def _copy(operations: list[Operation], source: int, slot: int) -> int:
    """Add the pair at the end; the place of its second half."""
    made = operations[source]
    for op, given in ((SEND, (source, slot)), (RECEIVE, (len(operations), 0))):
        operations.append(
            Operation(
                index=len(operations),
                name=f"{made.name}/{op}",
                op=op,
                inputs=(given,),
                control_inputs=(),
                outputs=(made.outputs[slot],),
                attributes={},
            )
        )
    return len(operations) - 1
