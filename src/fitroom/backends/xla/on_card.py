"""What a step takes on a card beyond the layout that XLA makes without one.

Two things depend on the card: which matrix products go to cuBLAS, which has a workspace, and which buffers are filled
before a convolution that has one. XLA learns that by timing kernels on the card. Without a card these rules tell it,
which were found on an H200.
"""

import math
from collections.abc import Iterator
from itertools import chain

from fitroom.backends.xla.dump import Dump, Instruction
from fitroom.cards.catalogue import Card

_HOPPER = (9, 0)
_HOPPER_BYTES = 32 * 2**20
_OTHERS_BYTES = 4 * 2**20

_SMALL_MULTIPLICATIONS = 3 * 10**8
"""Fewer take little longer than to start a kernel. Seen on an H200: 2 * 10**9 went to cuBLAS, the 10**8 of an LSTM's
loop and 2 * 10**5 did not."""

_CONVOLUTION = "cudnn-conv"
_CHANNEL_GROUP = 4
"""cuDNN's kernels for float32 take channels by fours."""

_FLOAT_BYTES = 4

_FUSED_ATTENTION_BACKWARD = "dot_product_attention_bwd"
"""In the name that JAX gives to the backward pass of cuDNN's fused attention."""


def added_on_card(dump: Dump, card: Card) -> Iterator[tuple[range, int]]:
    """The moments of the schedule at which a card holds more than the dump says, and how many bytes more."""
    return chain(matrix_workspaces(dump, card), early_fills(dump), attention_workspaces(dump))


def attention_workspaces(dump: Dump) -> Iterator[tuple[range, int]]:
    """The moments at which the backward pass of cuDNN's fused attention has a workspace, and its bytes.

    The layout without a card has room for none. The gradient of the queries is summed in float32 over blocks of keys,
    beside a number for each row of scores: so much is counted. Not measured on a card yet.
    """
    for moment, name in enumerate(dump.schedule.instructions):
        instruction = dump.program.instructions[name]
        if instruction.opcode == "custom-call" and _FUSED_ATTENTION_BACKWARD in instruction.op_name:
            rows = instruction.num_elements // max(instruction.dimensions[-1], 1) if instruction.dimensions else 0
            yield range(moment, moment + 1), _FLOAT_BYTES * (instruction.num_elements + rows)


def matrix_workspaces(dump: Dump, card: Card) -> Iterator[tuple[range, int]]:
    """The moments of the schedule at which a matrix product has a workspace, and its bytes.

    Without a card every product stays a kernel of XLA's own, which has none. On an H200 cuBLAS won the timing of those
    in float32, and takes the workspace that XLA has for it; those of half precision stayed XLA's own, and so did small
    ones, such as the last layer of a classifier.
    """
    workspace_bytes = _HOPPER_BYTES if (card.compute_capability or (0, 0)) >= _HOPPER else _OTHERS_BYTES
    for moment, name in enumerate(dump.schedule.instructions):
        if name.startswith("gemm_fusion") and _goes_to_cublas(dump, name):
            yield range(moment, moment + 1), workspace_bytes


def _goes_to_cublas(dump: Dump, name: str) -> bool:
    instructions = dump.program.instructions
    operands = [instructions[operand] for operand in instructions[name].operands if operand in instructions]
    if len(operands) < 2 or any(operand.dtype != "f32" for operand in operands):
        return False
    # Of m x k and k x n to m x n: the square root of their sizes multiplied is m x n x k.
    factors = sorted(operand.num_elements for operand in operands)[-2:]
    return math.isqrt(math.prod(factors) * instructions[name].num_elements) >= _SMALL_MULTIPLICATIONS


def early_fills(dump: Dump) -> Iterator[tuple[range, int]]:
    """The moments at which a card has filled a buffer that is filled only later without a card, and the buffer's bytes.

    XLA puts first what adds least to memory. To fill a buffer, as the backward pass of pooling wants it, needs nothing
    that comes before: it is done as soon as all else that could be done next adds more. A convolution adds its result,
    and on a card a workspace beside it, which is not known without one, except for images of three channels: cuDNN
    copies these, and the filters, into the order it works in. So a buffer that is larger than the result of the first
    convolution, and smaller than result and workspace together, is filled before it, and waits for the end of the
    backward pass. ResNet50, ResNet101 and DenseNet121 took 2 to 4 % more for that on an H200.
    """
    convolutions = list(_copying_convolutions(dump))
    for moment, name in enumerate(dump.schedule.instructions):
        instruction = dump.program.instructions[name]
        if instruction.operands or instruction.dtype != "f32":
            continue
        size_bytes = _num_bytes(instruction)
        earlier = [before for before, result, workspace in convolutions if result < size_bytes < result + workspace]
        if earlier and earlier[0] < moment:
            yield range(earlier[0], moment), size_bytes


def _copying_convolutions(dump: Dump) -> Iterator[tuple[int, int, int]]:
    """For each float32 convolution of odd channels: its moment, the size of its result, and that of its workspace."""
    instructions = dump.program.instructions
    for moment, name in enumerate(dump.schedule.instructions):
        if not name.startswith(_CONVOLUTION):
            continue
        given = [instructions[operand] for operand in instructions[name].operands[:2] if operand in instructions]
        if len(given) == 2 and all(each.dtype == "f32" for each in given):
            images, filters = given
            if images.dimensions[-1] % _CHANNEL_GROUP:
                yield moment, _num_bytes(instructions[name]), _num_bytes(images) + _num_bytes(filters)


def _num_bytes(instruction: Instruction) -> int:
    return _FLOAT_BYTES * instruction.num_elements
