"""The operations on lists of tensors, in which a loop keeps what its backward pass needs."""

from collections.abc import Callable, Sequence
from itertools import zip_longest

from fitroom.backends.tensorflow.trace.graph.output import Output
from fitroom.backends.tensorflow.trace.graph.program import Operation
from fitroom.backends.tensorflow.trace.graph.values import Held, Holdings, TensorList, Value

_Kernel = Callable[[Holdings, Operation, Sequence[Value]], list[Value]]


def _own(holdings: Holdings, value: Value) -> TensorList:
    """The list of a value for its new holder: the same where nobody else holds it, or else a copy of the list."""
    given = value.memory if isinstance(value.memory, TensorList) else TensorList(num_holders=0)
    if given.num_holders <= 1:
        holdings.hold(given)
        return given
    for item in given.items:
        if item is not None:
            holdings.hold(item.memory)
    return TensorList(list(given.items))


def _number(value: Value) -> int:
    return 0 if value.number is None else int(value.number)


def _reserve(holdings: Holdings, operation: Operation, inputs: Sequence[Value]) -> list[Value]:
    size = _number(inputs[1]) if operation.op == "TensorListReserve" else 0
    return [Value(operation.outputs[0], TensorList([None] * size))]


def _push(holdings: Holdings, operation: Operation, inputs: Sequence[Value]) -> list[Value]:
    made = _own(holdings, inputs[0])
    holdings.hold(inputs[1].memory)
    made.items.append(inputs[1])
    return [Value(operation.outputs[0], made)]


def _pop(holdings: Holdings, operation: Operation, inputs: Sequence[Value]) -> list[Value]:
    made = _own(holdings, inputs[0])
    item = made.items.pop() if made.items else None
    return [Value(operation.outputs[0], made), item or Value(operation.outputs[1])]


def _set(holdings: Holdings, operation: Operation, inputs: Sequence[Value]) -> list[Value]:
    made, place = _own(holdings, inputs[0]), _number(inputs[1])
    made.items.extend([None] * (place + 1 - len(made.items)))
    old = made.items[place]
    holdings.hold(inputs[2].memory)
    made.items[place] = inputs[2]
    if old is not None:
        holdings.release(old.memory)
    return [Value(operation.outputs[0], made)]


def _get(holdings: Holdings, operation: Operation, inputs: Sequence[Value]) -> list[Value]:
    given, place = inputs[0].memory, _number(inputs[1])
    items = given.items if isinstance(given, TensorList) else []
    item = items[place] if place < len(items) else None
    if item is None:  # a place never set reads as zeros
        size_bytes = operation.outputs[0].size_bytes
        return [Value(operation.outputs[0], holdings.take(size_bytes, operation.index) if size_bytes else None)]
    holdings.hold(item.memory)
    known = operation.outputs[0] if operation.outputs[0].num_elements is not None else item.output
    return [Value(known, item.memory)]


def _stack(holdings: Holdings, operation: Operation, inputs: Sequence[Value]) -> list[Value]:
    output = operation.outputs[0]
    size_bytes = output.size_bytes
    if not size_bytes and isinstance(inputs[0].memory, TensorList):
        items = inputs[0].memory.items
        shapes = [item.output.shape for item in items if item is not None]
        if shapes and shapes[0] is not None:
            output = Output((len(items), *shapes[0]), output.dtype)
            size_bytes = output.size_bytes
    return [Value(output, holdings.take(size_bytes, operation.index) if size_bytes else None)]


def _unstack(holdings: Holdings, operation: Operation, inputs: Sequence[Value]) -> list[Value]:
    """The rows of a tensor, each a copy."""
    shape = inputs[0].output.shape or (0,)
    row = Output(tuple(shape[1:]), inputs[0].output.dtype)
    rows: list[Value | None] = [
        Value(row, holdings.take(row.size_bytes, operation.index) if row.size_bytes else None)
        for _ in range(shape[0] or 0)
    ]
    return [Value(operation.outputs[0], TensorList(rows))]


def _zeros_like(holdings: Holdings, operation: Operation, inputs: Sequence[Value]) -> list[Value]:
    given = inputs[0].memory
    items: list[Value | None] = []
    for item in given.items if isinstance(given, TensorList) else []:
        same = item is not None and isinstance(item.memory, Held)
        items.append(
            Value(item.output, holdings.take(item.output.size_bytes, operation.index)) if item and same else None
        )
    return [Value(operation.outputs[0], TensorList(items))]


def _sum(holdings: Holdings, operation: Operation, inputs: Sequence[Value]) -> list[Value]:
    """Lists are added place by place; where only one of them has a tensor, that one is the sum."""
    lists = [value.memory.items for value in inputs if isinstance(value.memory, TensorList)]
    sums: list[Value | None] = []
    for items in zip_longest(*lists):
        found = [item for item in items if item is not None]
        if len(found) > 1:
            sums.append(Value(found[0].output, holdings.take(found[0].output.size_bytes, operation.index)))
        else:
            sums.append(found[0] if found else None)
            holdings.hold(found[0].memory if found else None)
    return [Value(operation.outputs[0], TensorList(sums))]


def _length(holdings: Holdings, operation: Operation, inputs: Sequence[Value]) -> list[Value]:
    given = inputs[0].memory
    number = len(given.items) if isinstance(given, TensorList) else 0
    return [Value(operation.outputs[0], number=number)]


LIST_KERNELS: dict[str, _Kernel] = {
    "EmptyTensorList": _reserve,
    "TensorListReserve": _reserve,
    "TensorListPushBack": _push,
    "TensorListPopBack": _pop,
    "TensorListSetItem": _set,
    "TensorListGetItem": _get,
    "TensorListStack": _stack,
    "TensorListConcatV2": _stack,
    "TensorListFromTensor": _unstack,
    "TensorListLength": _length,
    "ZerosLike": _zeros_like,
    "AddN": _sum,
}
