"""Scratch memory of matrix products, which XLA settles by timing kernels on the card.

Without a card every product stays a kernel of XLA's own, which takes none. On an H200 cuBLAS won those of float32, and
takes the workspace that XLA has for it; those of half precision stayed XLA's own.
"""

from collections.abc import Iterator

from fitroom.backends.xla.dump import Dump
from fitroom.estimating.cards import Card

_HOPPER = (9, 0)
_HOPPER_BYTES = 32 * 2**20
_OTHERS_BYTES = 4 * 2**20


def matrix_workspaces(dump: Dump, card: Card) -> Iterator[tuple[int, int]]:
    """When in the schedule a product takes a workspace, and how many bytes."""
    workspace_bytes = _HOPPER_BYTES if (card.compute_capability or (0, 0)) >= _HOPPER else _OTHERS_BYTES
    for moment, name in enumerate(dump.schedule.instructions):
        if name.startswith("gemm_fusion") and _is_float32(dump, name):
            yield moment, workspace_bytes


def _is_float32(dump: Dump, name: str) -> bool:
    instructions = dump.program.instructions
    operands = [instructions[operand].dtype for operand in instructions[name].operands if operand in instructions]
    return bool(operands) and all(dtype == "f32" for dtype in operands)
