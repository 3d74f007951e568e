"""Scratch memory of matrix products, which XLA settles by timing kernels on the card.

Without a card every product stays a kernel of XLA's own, which takes none. On an H200 cuBLAS won those of float32, and
takes the workspace that XLA has for it; those of half precision stayed XLA's own, and so did small ones, such as the
last layer of a classifier.
"""

import math
from collections.abc import Iterator

from fitroom.backends.xla.dump import Dump
from fitroom.cards.catalogue import Card

_HOPPER = (9, 0)
_HOPPER_BYTES = 32 * 2**20
_OTHERS_BYTES = 4 * 2**20

_SMALL_MULTIPLICATIONS = 3 * 10**8
"""Fewer take little longer than to start a kernel. Seen on the card: 2 * 10**9 went to cuBLAS, the 10**8 of an LSTM's
loop and 2 * 10**5 did not."""


def matrix_workspaces(dump: Dump, card: Card) -> Iterator[tuple[range, int]]:
    """At which moments of the schedule a product takes a workspace, and how many bytes."""
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
