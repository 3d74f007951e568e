"""Buffers that a card's schedule fills earlier than the one made without a card.

XLA puts first what adds least to memory. To fill a buffer, as the backward pass of pooling wants it, needs nothing that
comes before: it is done as soon as all else that could be done next adds more. A convolution adds its result, and on a
card a workspace beside it, which nobody knows without one; but for pictures of three channels: cuDNN copies these, and
the filters, into the order it works in. So what is larger than the result of the first convolution, and smaller than
that and the workspace together, is filled before it, and waits for the end of the backward pass. ResNet50, ResNet101
and DenseNet121 took 2 to 4 % more for that on an H200.
"""

from collections.abc import Iterator

from fitroom.backends.xla.dump import Dump, Instruction

_CONVOLUTION = "cudnn-conv"
_CHANNELS_AT_ONCE = 4
_FLOAT_BYTES = 4


def early_fills(dump: Dump) -> Iterator[tuple[range, int]]:
    """The moments before a buffer is filled here at which a card has filled it, and its size."""
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
    """When there is a convolution of odd channels in float32, the size of its result, and that of its workspace."""
    instructions = dump.program.instructions
    for moment, name in enumerate(dump.schedule.instructions):
        if not name.startswith(_CONVOLUTION):
            continue
        given = [instructions[operand] for operand in instructions[name].operands[:2] if operand in instructions]
        if len(given) == 2 and all(each.dtype == "f32" for each in given):
            pictures, filters = given
            if pictures.dimensions[-1] % _CHANNELS_AT_ONCE:
                yield moment, _num_bytes(instructions[name]), _num_bytes(pictures) + _num_bytes(filters)


def _num_bytes(instruction: Instruction) -> int:
    return _FLOAT_BYTES * instruction.num_elements
